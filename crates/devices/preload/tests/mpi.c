// An MPI program for any number of ranks: they connect to each other at the same time, and exchange messages of all sizes
// that libraries treat differently, in collective operations and one-sided ones.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;

static void check(int holds, const char *what, int length) {
    if (holds)
        return;
    fprintf(stderr, "rank %d: wrong %s of %d bytes\n", rank, what, length);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

// Each rank sends to each other one, and receives from it.
static void exchange(int length) {
    unsigned char *sent = malloc(length), *received = malloc(length);
    for (int shift = 1; shift < ranks; shift++) {
        int to = (rank + shift) % ranks, from = (rank + ranks - shift) % ranks;
        memset(sent, rank + length + 1, length);
        memset(received, 0, length);
        MPI_Sendrecv(sent, length, MPI_BYTE, to, shift, received, length, MPI_BYTE, from, shift, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        for (int i = 0; i < length; i++)
            check(received[i] == (unsigned char)(from + length + 1), "message", length);
    }
    free(sent);
    free(received);
}

static void reduce(int count) {
    int *numbers = calloc(count, sizeof *numbers), *sums = calloc(count, sizeof *sums);
    for (int i = 0; i < count; i++)
        numbers[i] = i + rank;
    MPI_Allreduce(numbers, sums, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++)
        check(sums[i] == i * ranks + ranks * (ranks - 1) / 2, "sum", count * (int)sizeof *sums);
    free(numbers);
    free(sums);
}

// All ranks add to a counter in the memory of rank 0.
static void count(int times) {
    int *counter, one = 1, before;
    MPI_Win window;
    MPI_Win_allocate(sizeof *counter, sizeof *counter, MPI_INFO_NULL, MPI_COMM_WORLD, &counter, &window);
    *counter = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, window);
    for (int i = 0; i < times; i++) {
        MPI_Fetch_and_op(&one, &before, MPI_INT, 0, 0, MPI_SUM, window);
        MPI_Win_flush(0, window);
    }
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    check(rank != 0 || *counter == times * ranks, "counter", sizeof *counter);
    MPI_Win_free(&window);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int length = 1; length <= 1 << 21; length *= 8)
        exchange(length);
    reduce(1);
    reduce(100000);
    count(20);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d ranks: all right\n", ranks);
    MPI_Finalize();
    return 0;
}
