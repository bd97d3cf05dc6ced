// What the disk takes for a block that is written past the page cache: from small pages and from large ones, as a whole and in pieces that
// are given to the kernel while the rest is formed, and after a rest, with and without a read meanwhile. Prints medians in us.
//   cc -O2 -o block-writes block-writes.c -lpthread && ./block-writes FILE      on the disk to measure; FILE is made, 256 MiB
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { KIB = 1 << 10, MIB = 1 << 20, FILE_BYTES = 256 * MIB, ROUNDS = 400, PIECES_MAX = 16 };
static int synced, unsynced, cached;
static double took[ROUNDS];
static long pos;

static void need(int ok, const char *what) {
  if (!ok) { perror(what); exit(1); }
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void spin(double us) {
  for (double end = now() + us; now() < end;) {}
}

static int order(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(int count) {
  qsort(took, count, sizeof *took, order);
  return took[count / 2];
}

static long next(long bytes) {
  if (pos + bytes > FILE_BYTES) pos = 0;
  pos += bytes;
  return pos - bytes;
}

static char *memory(int is_large) {
  char *at = aligned_alloc(2 * MIB, 4 * MIB);
  need(at && !madvise(at, 4 * MIB, is_large ? MADV_HUGEPAGE : MADV_NOHUGEPAGE), "memory");
  for (int i = 0; i < 4 * MIB; i++) at[i] = rand();
  return at;
}

// Forms for 55 ns a KiB, then writes; in pieces of `piece` bytes as they are formed, unless that is 0.
static double formed(char *from, long bytes, long piece) {
  aio_context_t context = 0;
  need(!syscall(SYS_io_setup, PIECES_MAX, &context), "io_setup");
  for (int round = 0; round < ROUNDS; round++) {
    double start = now();
    long at = next(bytes);
    struct iocb calls[PIECES_MAX] = {0}, *call = calls;
    struct io_event done[PIECES_MAX];
    for (long from_here = 0; from_here < bytes && piece; from_here += piece, call++) {
      spin(0.055 * piece / KIB);
      *call = (struct iocb){.aio_fildes = unsynced, .aio_lio_opcode = IOCB_CMD_PWRITE, .aio_buf = (long)(from + from_here), .aio_nbytes = piece, .aio_offset = at + from_here};
      struct iocb *one[] = {call};
      need(syscall(SYS_io_submit, context, 1, one) == 1, "io_submit");
    }
    if (piece) {
      need(syscall(SYS_io_getevents, context, call - calls, call - calls, done, NULL) == call - calls, "io_getevents");
      need(!fdatasync(unsynced), "fdatasync");
    } else {
      spin(0.055 * bytes / KIB);
      need(pwrite(synced, from, bytes, at) == bytes, "pwrite");
    }
    took[round] = now() - start;
  }
  syscall(SYS_io_destroy, context);
  return median(ROUNDS);
}

static double bare(char *from, long bytes) {
  for (int round = 0; round < ROUNDS; round++) {
    double start = now();
    need(pwrite(cached, from, bytes, next(bytes)) == bytes && !fdatasync(cached), "bare");
    took[round] = now() - start;
  }
  return median(ROUNDS);
}

static void *read_one(void *to) {
  need(pread(unsynced, to, 4 * KIB, 0) == 4 * KIB, "pread");
  return NULL;
}

static double rested(char *from, int us, int reads) {
  int count = ROUNDS / 4;
  for (int round = 0; round < count; round++) {
    pthread_t reader;
    usleep(us);
    if (reads) need(!pthread_create(&reader, NULL, read_one, from + 2 * MIB), "thread");
    spin(100);
    double start = now();
    need(pwrite(synced, from, 4 * KIB, next(4 * KIB)) == 4 * KIB, "pwrite");
    took[round] = now() - start;
    if (reads) pthread_join(reader, NULL);
  }
  return median(count);
}

int main(int count, char **words) {
  if (count != 2) return fprintf(stderr, "the first lines of block-writes.c say what it takes\n"), 2;
  need((cached = open(words[1], O_RDWR | O_CREAT, 0644)) >= 0, words[1]);
  char *small = memory(0), *large = memory(1);
  for (long at = 0; at < FILE_BYTES; at += 4 * MIB) need(pwrite(cached, small, 4 * MIB, at) == 4 * MIB, "fill");
  need(!fsync(cached), "fsync");
  need((unsynced = open(words[1], O_RDWR | O_DIRECT)) >= 0, "O_DIRECT");
  need((synced = open(words[1], O_RDWR | O_DIRECT | O_DSYNC)) >= 0, "O_DIRECT");
  for (long bytes = 256 * KIB; bytes <= MIB; bytes *= 4) {
    printf("%ld KiB: bare through the page cache %.0f\n", bytes / KIB, bare(small, bytes));
    printf("  small pages: whole %.0f, in pieces of a quarter %.0f\n", formed(small, bytes, 0), formed(small, bytes, bytes / 4));
    printf("  large pages: whole %.0f, in pieces of a quarter %.0f\n", formed(large, bytes, 0), formed(large, bytes, bytes / 4));
  }
  for (int us = 1000; us <= 20000; us *= 20) printf("4 KiB after %d us of rest: %.0f, with a read meanwhile %.0f\n", us, rested(small, us, 0), rested(small, us, 1));
  return 0;
}
