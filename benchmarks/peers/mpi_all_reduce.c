// MPI_Allreduce of f32 sums of any MPI that has a compiler of its own, in microseconds:
//
//     mpicc.mpich -O2 mpi_all_reduce.c -o mpi_all_reduce && mpirun.mpich -n 2 -bind-to core ./mpi_all_reduce ROUNDS BYTES...
//
// In place, as many calls in a row as benchmark_host_all_reduce makes; the minimum and the median
// over the rounds of the slowest rank's mean call, one JSON object a size.

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double seconds_a_call(float* values, size_t count, int calls) {
  for (size_t i = 0; i < count; ++i) values[i] = (float)(rand() % 1024) / 1024;
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  for (int i = 0; i < calls; ++i)
    MPI_Allreduce(MPI_IN_PLACE, values, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  double seconds = (MPI_Wtime() - start) / calls;
  MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return seconds;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int rounds = argc > 2 ? atoi(argv[1]) : 0;
  if (rounds < 1) MPI_Abort(MPI_COMM_WORLD, 2);
  double* const times = malloc((size_t)rounds * sizeof(double));
  for (int i = 2; i < argc; ++i) {
    const size_t bytes = strtoul(argv[i], NULL, 10);
    const int calls = bytes >= 1 << 20 ? 1 : bytes * 100 <= 1 << 20 ? 100 : (int)((1 << 20) / bytes);
    float* const values = malloc(bytes);
    seconds_a_call(values, bytes / sizeof(float), calls);
    for (int round = 0; round < rounds; ++round)
      times[round] = seconds_a_call(values, bytes / sizeof(float), calls);
    qsort(times, (size_t)rounds, sizeof(double), compare);
    if (rank == 0)
      printf("{\"bytes\": %zu, \"us\": %.3f, \"us_median\": %.3f}\n", bytes, times[0] * 1e6,
             times[rounds / 2] * 1e6);
    free(values);
  }
  free(times);
  return MPI_Finalize();
}
