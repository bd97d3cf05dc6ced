// What memory costs that a rest has put out of the caches, by pages of 4 KiB and of 2 MiB.
//   cc -O2 -o cold-lines cold-lines.c && ./cold-lines
// Reads 3,000 lines, twenty on each of 150 pages scattered over 26 MiB, after resting; prints medians of 60 in microseconds.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { PAGES = 150, LINES_EACH = 20, LINES = PAGES * LINES_EACH, LINE = 64, PAGE = 4096, HUGE = 2 << 20, AREA = 26 << 20, ROUNDS = 60 };

static uint32_t at[LINES];
static volatile uint64_t sink;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void rest(long us) {
  struct timespec t = {0, us * 1000};
  if (us) nanosleep(&t, NULL);
}

// The same lines for every kind of page; each line holds where the next one is.
static uint8_t *area(int advice) {
  uint8_t *raw = mmap(NULL, AREA + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) abort();
  uint8_t *area = (uint8_t *)(((uintptr_t)raw + HUGE - 1) & ~(uintptr_t)(HUGE - 1));
  madvise(area, AREA, advice);
  memset(area, 1, AREA);
  for (int i = 0; i < LINES; i++) *(uint32_t *)(area + at[i]) = at[(i + 1) % LINES];
  return area;
}

static void each(const uint8_t *area) {
  uint64_t sum = 0;
  for (int i = 0; i < LINES; i++) sum += area[at[i]];
  sink = sum;
}

static void chased(const uint8_t *area) {
  uint32_t next = at[0];
  for (int i = 0; i < LINES; i++) next = *(const uint32_t *)(area + next);
  sink = next;
}

static void multiplied(const uint8_t *area) {
  uint64_t x = (uintptr_t)area | 1;
  for (int i = 0; i < 20000; i++) x = x * 6364136223846793005u + 1442695040888963407u;
  sink = x;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void row(const char *name, void (*work)(const uint8_t *), const uint8_t *area) {
  const long rests[] = {0, 1000, 20000};
  printf("%-36s", name);
  for (int r = 0; r < 3; r++) {
    double took[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
      rest(rests[r]);
      double began = now();
      work(area);
      took[i] = now() - began;
    }
    qsort(took, ROUNDS, sizeof *took, ascending);
    printf(" %8.1f", took[ROUNDS / 2]);
  }
  printf("\n");
}

int main(void) {
  srand(1);
  for (int p = 0; p < PAGES; p++) {
    uint32_t page = rand() % (AREA / PAGE) * PAGE;
    for (int l = 0; l < LINES_EACH; l++) at[p * LINES_EACH + l] = page + rand() % (PAGE / LINE) * LINE;
  }
  for (int i = LINES - 1; i > 0; i--) {
    int j = rand() % (i + 1);
    uint32_t t = at[i];
    at[i] = at[j], at[j] = t;
  }
  const uint8_t *small = area(MADV_NOHUGEPAGE), *large = area(MADV_HUGEPAGE);
  printf("%-36s %8s %8s %8s\n", "us after a rest of", "none", "1 ms", "20 ms");
  row("multiplying", multiplied, small);
  row("pages of 4 KiB", each, small);
  row("pages of 2 MiB", each, large);
  row("pages of 4 KiB, one after the other", chased, small);
  row("pages of 2 MiB, one after the other", chased, large);
  return 0;
}
