// A program of MPI: messages of many sizes around a ring, all to all, and a sum; every byte is compared. It
// is compiled by the compilers of Open MPI and MPICH (cases/mpi.py), and not by the project's build.
// Single-threaded.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kMostBytes = 4 << 20, kRounds = 3 };

static int rank, ranks;

static unsigned char value(int from, int to, size_t at) {
  return (unsigned char)(from * 31 + to * 17 + at * 7 + (at >> 8));
}

static void fill(unsigned char* bytes, size_t size, int from, int to) {
  for (size_t i = 0; i < size; ++i) bytes[i] = value(from, to, i);
}

static void compare(const unsigned char* bytes, size_t size, int from, int to) {
  for (size_t i = 0; i < size; ++i) {
    if (bytes[i] == value(from, to, i)) continue;
    fprintf(stderr, "rank %d: byte %zu of %zu from rank %d is wrong\n", rank, i, size, from);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

static void ring(unsigned char* out, unsigned char* in, size_t size) {
  const int next = (rank + 1) % ranks;
  const int previous = (rank + ranks - 1) % ranks;
  fill(out, size, rank, next);
  MPI_Sendrecv(out, (int)size, MPI_BYTE, next, 1, in, (int)size, MPI_BYTE, previous, 1, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  compare(in, size, previous, rank);
}

static void all_to_all(unsigned char* out, unsigned char* in, size_t size) {
  for (int to = 0; to < ranks; ++to) fill(out + to * size, size, rank, to);
  MPI_Alltoall(out, (int)size, MPI_BYTE, in, (int)size, MPI_BYTE, MPI_COMM_WORLD);
  for (int from = 0; from < ranks; ++from) compare(in + from * size, size, from, rank);
}

static void sum(void) {
  int total = 0;
  MPI_Allreduce(&rank, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (total != ranks * (ranks - 1) / 2) MPI_Abort(MPI_COMM_WORLD, 2);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  unsigned char* out = malloc(kMostBytes);
  unsigned char* in = malloc(kMostBytes);
  for (int round = 0; round < kRounds; ++round) {
    for (size_t size = 1; size <= kMostBytes; size *= 8) ring(out, in, size);
    ring(out, in, kMostBytes);
    all_to_all(out, in, 8);
    all_to_all(out, in, (size_t)kMostBytes / ranks / 4);
    sum();
  }
  if (rank == 0) printf("%d ranks have exchanged everything\n", ranks);
  free(out);
  free(in);
  MPI_Finalize();
  return 0;
}
