// Publishes, pulls and settles with the client of ogen.
package main

import (
	"context"
	"log"
	"os"

	"github.com/go-faster/jx"

	"weir.contract/generated/ogen"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	name := os.Args[1]
	client, err := ogen.NewClient(os.Getenv("WEIR_URL"))
	check(err)
	ctx := context.Background()
	body := ogen.PublishMessageReqApplicationJSON{"order": jx.Raw("7")}
	published, err := client.PublishMessage(ctx, &body,
		ogen.PublishMessageParams{Ns: "default", Topic: name, MessageKey: ogen.NewOptString("k")})
	check(err)
	if _, ok := published.(*ogen.PublishMessageCreated); !ok {
		log.Fatalf("%#v", published)
	}
	pull := ogen.Pull{Max: ogen.NewOptNilInt64(1), WaitMs: ogen.NewOptNilInt64(5000)}
	pulled, err := client.PullMessages(ctx, ogen.NewOptPull(pull),
		ogen.PullMessagesParams{Ns: "default", Subscription: name})
	check(err)
	if len(pulled.Messages) != 1 || pulled.Messages[0].Key.Value != "k" {
		log.Fatalf("%#v", pulled)
	}
	settle := ogen.Settle{Ack: []string{pulled.Messages[0].Lease}}
	settled, err := client.SettleMessages(ctx, ogen.NewOptSettle(settle),
		ogen.SettleMessagesParams{Ns: "default", Subscription: name})
	check(err)
	done, ok := settled.(*ogen.SettleMessagesOK)
	if !ok || done.Response.Results[0].Result != ogen.SettleOutcomeOk {
		log.Fatalf("%#v", settled)
	}
}
