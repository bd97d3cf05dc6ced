// What runs beside a server on its own processors and disk, a part of what sealing is at a time.
//   cc -O2 -o beside beside.c
//   ./beside burn NICE|idle ON_US OFF_US SECONDS     takes a processor for ON_US of its own time, then rests
//   ./beside read FILE BYTES_EACH PER_S SECONDS      reads at random past the page cache, nice 10, 200 in a row and then a rest
//   ./beside turns PID US                            asks the scheduler for turns of US for every thread that PID has now
// The first two end by themselves and say on stderr what they got.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ALIGN = 4096, IN_A_ROW = 200, WORK = 40000 };

// As the kernel has it since 6.12: for usual threads `runtime` is how long a turn is.
struct attr {
  uint32_t size, policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime, deadline, period;
};

static void need(int fine, const char *what) {
  if (fine) return;
  perror(what);
  exit(1);
}

static double now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void rest(double us) {
  struct timespec t = {(time_t)(us / 1e6), (long)(us * 1e3) % 1000000000};
  if (us > 0) nanosleep(&t, NULL);
}

static void burn(const char *priority, double on, double off, double seconds) {
  struct sched_param none = {0};
  if (!strcmp(priority, "idle")) need(!sched_setscheduler(0, SCHED_IDLE, &none), "idle");
  else need(!setpriority(PRIO_PROCESS, 0, atoi(priority)), "nice");
  double begun = now(CLOCK_MONOTONIC), end = begun + seconds * 1e6;
  while (now(CLOCK_MONOTONIC) < end) {
    double start = now(CLOCK_THREAD_CPUTIME_ID);
    while (now(CLOCK_THREAD_CPUTIME_ID) - start < on) {}
    rest(off);
  }
  double took = now(CLOCK_MONOTONIC) - begun;
  fprintf(stderr, "%s: %.0f %% of a processor\n", priority, 100 * now(CLOCK_PROCESS_CPUTIME_ID) / took);
}

static void reads(const char *path, long each, double per_s, double seconds) {
  need(!setpriority(PRIO_PROCESS, 0, 10), "nice");
  int file = open(path, O_RDONLY | O_DIRECT);
  struct stat stat;
  void *memory;
  need(file >= 0 && !fstat(file, &stat), path);
  need(!posix_memalign(&memory, ALIGN, each), "memory");
  long places = (stat.st_size - each) / ALIGN, count = 0;
  need(places > 0, path);
  double begun = now(CLOCK_MONOTONIC);
  while (now(CLOCK_MONOTONIC) - begun < seconds * 1e6) {
    for (int i = 0; i < IN_A_ROW; i++, count++) {
      need(pread(file, memory, each, random() % places * ALIGN) == each, "pread");
      for (volatile int work = 0; work < WORK; work++) {}
    }
    rest(begun + count / per_s * 1e6 - now(CLOCK_MONOTONIC));
  }
  fprintf(stderr, "%.0f reads a second\n", count / ((now(CLOCK_MONOTONIC) - begun) / 1e6));
}

static void turns(const char *pid, double us) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%s/task", pid);
  DIR *tasks = opendir(path);
  need(tasks != NULL, path);
  for (struct dirent *task; (task = readdir(tasks));) {
    pid_t id = atoi(task->d_name);
    if (!id) continue;
    struct attr attr = {.size = sizeof attr, .nice = getpriority(PRIO_PROCESS, id), .runtime = us * 1e3};
    need(!syscall(SYS_sched_setattr, id, &attr, 0), "sched_setattr");
  }
  closedir(tasks);
}

int main(int count, char **words) {
  if (count == 6 && !strcmp(words[1], "burn")) burn(words[2], atof(words[3]), atof(words[4]), atof(words[5]));
  else if (count == 6 && !strcmp(words[1], "read")) reads(words[2], atol(words[3]), atof(words[4]), atof(words[5]));
  else if (count == 4 && !strcmp(words[1], "turns")) turns(words[2], atof(words[3]));
  else return fprintf(stderr, "the first lines of beside.c say what it takes\n"), 2;
  return 0;
}
