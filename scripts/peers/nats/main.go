// A closed loop against NATS JetStream: N messages under way, each acknowledged before the next. Every acknowledged
// message is read back at the end. Prints one line of JSON in the form that `weir bench table` reads.
package main

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

type percentiles struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
	P50   int64  `json:"p50_us"`
	P99   int64  `json:"p99_us"`
	P999  int64  `json:"p999_us"`
	Max   int64  `json:"max_us"`
}

type figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

func main() {
	url := flag.String("url", "nats://127.0.0.1:4222", "server")
	outstanding := flag.Int("outstanding", 64, "messages under way")
	seconds := flag.Float64("seconds", 5, "how long it counts, after a fifth as long that warms up")
	size := flag.Int("payload", 1024, "bytes of a message")
	label := flag.String("case", "", "what the run is called")
	workload := flag.String("workload", "peers", "name of the workload")
	server := flag.Int("pid", 0, "process whose processor time is read")
	flag.Parse()
	connection, err := nats.Connect(*url)
	check(err)
	defer connection.Close()
	stream, err := connection.JetStream(nats.PublishAsyncMaxPending(1 << 17))
	check(err)
	name := fmt.Sprintf("bench%d", time.Now().UnixNano())
	_, err = stream.AddStream(&nats.StreamConfig{Name: name, Subjects: []string{name}, Storage: nats.FileStorage})
	check(err)

	warm := time.Duration(*seconds / 5 * float64(time.Second))
	// A server that answers nothing any more ends the run, not the patience of who waits for it.
	silence := time.AfterFunc(warm+time.Duration(*seconds*float64(time.Second))+time.Minute, func() {
		log.Fatal("a minute after the end not everything is acknowledged")
	})
	start, before := time.Now(), processorTime(*server)
	from, until := start.Add(warm), start.Add(warm+time.Duration(*seconds*float64(time.Second)))
	var mutex sync.Mutex
	var times []int64
	var group sync.WaitGroup
	sent := make([]uint64, *outstanding)
	for writer := range sent {
		group.Add(1)
		go func() {
			defer group.Done()
			payload := make([]byte, *size)
			rand.Read(payload)
			var own []int64
			for time.Now().Before(until) {
				binary.LittleEndian.PutUint32(payload, uint32(writer))
				binary.LittleEndian.PutUint64(payload[4:], sent[writer])
				begin := time.Now()
				// The library keeps no copy after the acknowledgement.
				future, err := stream.PublishAsync(name, payload)
				check(err)
				select {
				case <-future.Ok():
				case err := <-future.Err():
					check(err)
				}
				sent[writer]++
				if end := time.Now(); end.After(from) && end.Before(until) {
					own = append(own, end.Sub(begin).Microseconds())
				}
			}
			mutex.Lock()
			times = append(times, own...)
			mutex.Unlock()
		}()
	}
	group.Wait()
	silence.Stop()
	used := processorTime(*server) - before
	missing, twice, read := readBack(stream, name, sent)
	check(stream.DeleteStream(name))
	report(*workload, *label, times, *seconds, warm.Seconds(), sent, used, missing, twice, read)
}

// processorTime is what a process has used, in microseconds; 0 without one. Linux counts in hundredths of a second.
func processorTime(pid int) float64 {
	if pid == 0 {
		return 0
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	check(err)
	fields := strings.Fields(string(text[strings.LastIndex(string(text), ")")+2:]))
	user, err := strconv.ParseFloat(fields[11], 64)
	check(err)
	system, err := strconv.ParseFloat(fields[12], 64)
	check(err)
	return (user + system) * 10_000
}

func readBack(stream nats.JetStreamContext, name string, sent []uint64) (missing, twice, read uint64) {
	var total uint64
	seen := make([][]bool, len(sent))
	for writer, count := range sent {
		total += count
		seen[writer] = make([]bool, count)
	}
	subscription, err := stream.SubscribeSync(name, nats.OrderedConsumer())
	check(err)
	for read < total {
		message, err := subscription.NextMsg(5 * time.Second)
		if err != nil {
			break
		}
		writer, seq := binary.LittleEndian.Uint32(message.Data), binary.LittleEndian.Uint64(message.Data[4:])
		if seen[writer][seq] {
			twice++
		}
		seen[writer][seq] = true
		read++
	}
	for _, messages := range seen {
		for _, there := range messages {
			if !there {
				missing++
			}
		}
	}
	return missing, twice, read
}

func report(workload, label string, times []int64, seconds, warm float64, sent []uint64, used float64, missing, twice, read uint64) {
	sort.Slice(times, func(a, b int) bool { return times[a] < times[b] })
	at := func(part float64) int64 {
		if len(times) == 0 {
			return 0
		}
		return times[min(len(times)-1, int(part*float64(len(times))))]
	}
	var total uint64
	for _, count := range sent {
		total += count
	}
	void := []string{}
	if missing > 0 || twice > 0 {
		void = append(void, fmt.Sprintf("%d messages lost, %d twice", missing, twice))
	}
	line, err := json.Marshal(map[string]any{
		"workload": workload, "case": label, "warmup_s": warm, "seconds": seconds,
		"latencies": []percentiles{{"confirm", len(times), at(0.5), at(0.99), at(0.999), at(1)}},
		"figures": []figure{
			{"confirmed_per_s", float64(len(times)) / seconds}, {"server_cpu_us_per_message", used / float64(max(total, 1))},
		},
		"identity": map[string]uint64{
			"sent": total, "confirmed": total, "delivered": read, "missing": missing, "duplicates": twice, "out_of_order": 0,
		},
		"void": void,
	})
	check(err)
	fmt.Println(string(line))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
