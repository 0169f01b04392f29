// One side of a connection of rsockets that lasts until the other side is killed. It prints how the connection ended.
// Arguments: what it does, and the address of the server.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <rdma/rsocket.h>

#include "verbs.h"

static char bytes[1000];

static void answer(int fd) {
    for (;;) {
        ssize_t got = rrecv(fd, bytes, sizeof bytes, 0);
        if (got <= 0 || rsend(fd, bytes, got, 0) < 0) {
            printf("ended: %s\n", got == 0 ? "end of data" : strerror(errno));
            return;
        }
    }
}

static void ask(int fd) {
    for (int round = 0;; round++) {
        ssize_t got = 0;
        if (rsend(fd, bytes, sizeof bytes, 0) < 0 || (got = rrecv(fd, bytes, sizeof bytes, MSG_WAITALL)) != sizeof bytes) {
            printf("ended: %s\n", got >= 0 ? "end of data" : strerror(errno));
            return;
        }
        if (round == 20)
            printf("connected\n");
    }
}

// Sends nothing: only the end of the connection wakes it.
static void wait_for_end(int fd, int polls) {
    printf("connected\n");
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    if (polls)
        CHECK(rpoll(&entry, 1, -1) == 1);
    ssize_t got = rrecv(fd, bytes, sizeof bytes, 0);
    printf("ended: %s\n", got == 0 ? "end of data" : strerror(errno));
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(7471)};
    CHECK(inet_pton(AF_INET, argv[2], &at.sin_addr) == 1);
    int fd = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    if (strcmp(argv[1], "answer") == 0) {
        CHECK(rbind(fd, (struct sockaddr *)&at, sizeof at) == 0 && rlisten(fd, 5) == 0);
        int accepted = raccept(fd, NULL, NULL);
        CHECK(accepted >= 0);
        answer(accepted);
        CHECK(rclose(accepted) == 0);
    } else {
        CHECK(rconnect(fd, (struct sockaddr *)&at, sizeof at) == 0);
        if (strcmp(argv[1], "ask") == 0)
            ask(fd);
        else {
            int on = strcmp(argv[1], "keepalive") == 0;
            CHECK(rsetsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) == 0);
            CHECK(!on || rsetsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &on, sizeof on) == 0);
            wait_for_end(fd, strcmp(argv[1], "poll") == 0);
        }
    }
    CHECK(rclose(fd) == 0);
    return 0;
}
