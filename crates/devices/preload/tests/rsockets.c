// Walks the interface of rsockets: its errors, its options, and what it shares with TCP sockets. The argument is the
// address of the device.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <sys/wait.h>

#include "verbs.h"

#define MEBI (1 << 20)

static struct sockaddr_in at;
static int listener;
static unsigned char pattern[4 * MEBI], received[4 * MEBI];

static int make(void) {
    int fd = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    return fd;
}

static void set_nonblocking(int fd, int on) {
    int flags = rfcntl(fd, F_GETFL);
    CHECK(flags >= 0);
    CHECK(rfcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK) == 0);
}

static int poll_one(int fd, int events, int timeout) {
    struct pollfd entry = {.fd = fd, .events = events};
    int ready = rpoll(&entry, 1, timeout);
    CHECK(ready >= 0 && ready == (entry.revents != 0));
    return entry.revents;
}

// Connects two rsockets within this thread: the device accepts while the program does something else.
static void connect_pair(int pair[2]) {
    pair[0] = make();
    CHECK(rconnect(pair[0], (struct sockaddr *)&at, sizeof at) == 0);
    struct sockaddr_in peer, own;
    socklen_t size = sizeof peer;
    pair[1] = raccept(listener, (struct sockaddr *)&peer, &size);
    CHECK(pair[1] >= 0 && size == sizeof peer);
    size = sizeof own;
    CHECK(rgetsockname(pair[0], (struct sockaddr *)&own, &size) == 0);
    CHECK(own.sin_port == peer.sin_port && own.sin_addr.s_addr == peer.sin_addr.s_addr);
    size = sizeof peer;
    CHECK(rgetpeername(pair[0], (struct sockaddr *)&peer, &size) == 0);
    CHECK(peer.sin_port == at.sin_port && peer.sin_addr.s_addr == at.sin_addr.s_addr);
}

static void close_pair(int pair[2]) {
    CHECK(rclose(pair[0]) == 0);
    CHECK(rclose(pair[1]) == 0);
}

static void send_all(int fd, const unsigned char *from, size_t size) {
    for (size_t sent = 0; sent < size;) {
        ssize_t now = rsend(fd, from + sent, size - sent, 0);
        CHECK(now > 0);
        sent += now;
    }
}

static void walk_errors(void) {
    FAILED(rsocket(AF_UNIX, SOCK_STREAM, 0), EAFNOSUPPORT);
    FAILED(rsocket(AF_INET, SOCK_DGRAM, 0), EOPNOTSUPP);
    FAILED(rsocket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), EOPNOTSUPP);
    FAILED(rsocket(AF_INET, SOCK_STREAM, IPPROTO_UDP), EOPNOTSUPP);
    char byte = 1;
    int value = 1, file = open("/dev/null", O_RDWR);
    socklen_t size = sizeof value;
    CHECK(file >= 0);
    for (int round = 0; round < 2; round++) {
        int fd = round ? file : -1;
        FAILED(rbind(fd, (struct sockaddr *)&at, sizeof at), EBADF);
        FAILED(rlisten(fd, 1), EBADF);
        FAILED(raccept(fd, NULL, NULL), EBADF);
        FAILED(rconnect(fd, (struct sockaddr *)&at, sizeof at), EBADF);
        FAILED(rsend(fd, &byte, 1, 0), EBADF);
        FAILED(rread(fd, &byte, 1), EBADF);
        FAILED(rshutdown(fd, SHUT_RDWR), EBADF);
        FAILED(rgetsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &size), EBADF);
        FAILED(rfcntl(fd, F_GETFL), EBADF);
        FAILED(riounmap(fd, &byte, 1), EBADF);
        FAILED(rclose(fd), EBADF);
    }
    close(file);

    int fd = make();
    struct sockaddr_in any;
    size = sizeof any;
    CHECK(rgetsockname(fd, (struct sockaddr *)&any, &size) == 0 && any.sin_port == 0);
    FAILED(rgetpeername(fd, (struct sockaddr *)&any, &size), ENOTCONN);
    FAILED(rsend(fd, &byte, 1, 0), ENOTCONN);
    FAILED(rrecv(fd, &byte, 1, 0), ENOTCONN);
    FAILED(rshutdown(fd, SHUT_WR), ENOTCONN);
    FAILED(rshutdown(fd, 7), EINVAL);
    FAILED(raccept(fd, NULL, NULL), EINVAL);
    FAILED(riomap(fd, &byte, 1, PROT_WRITE, 0, 0), ENOTCONN);
    FAILED(rbind(fd, NULL, 0), EINVAL);
    FAILED(rbind(fd, (struct sockaddr *)&at, 4), EINVAL);
    FAILED(rbind(fd, (struct sockaddr *)&at, sizeof at), EADDRINUSE);
    struct sockaddr_in foreign = at;
    foreign.sin_addr.s_addr = htonl(0xc0000201);
    FAILED(rbind(fd, (struct sockaddr *)&foreign, sizeof foreign), EADDRNOTAVAIL);
    // Nobody listens there.
    struct sockaddr_in nobody = at;
    nobody.sin_port = htons(9);
    FAILED(rconnect(fd, (struct sockaddr *)&nobody, sizeof nobody), ECONNREFUSED);
    CHECK(poll_one(fd, POLLIN, -1) & POLLERR);
    FAILED(rsend(fd, &byte, 1, 0), ENOTCONN);
    CHECK(rclose(fd) == 0);
    FAILED(rclose(fd), EBADF);
}

static int option(int fd, int level, int name) {
    int value = -1;
    socklen_t size = sizeof value;
    CHECK(rgetsockopt(fd, level, name, &value, &size) == 0 && size == sizeof value);
    return value;
}

static void walk_options(void) {
    int fd = make(), on = 1, size = 65536, large = 1000000, many = 300;
    CHECK(option(fd, SOL_SOCKET, SO_TYPE) == SOCK_STREAM);
    CHECK(option(fd, SOL_SOCKET, SO_ERROR) == 0);
    CHECK(option(fd, SOL_RDMA, RDMA_SQSIZE) == 384 && option(fd, SOL_RDMA, RDMA_RQSIZE) == 384);
    CHECK(option(fd, SOL_RDMA, RDMA_INLINE) == 64 && option(fd, SOL_RDMA, RDMA_IOMAPSIZE) == 0);
    CHECK(option(fd, SOL_SOCKET, SO_SNDBUF) == 1 << 17 && option(fd, SOL_SOCKET, SO_RCVBUF) == 1 << 17);
    int levels[][2] = {
        {SOL_SOCKET, SO_REUSEADDR}, {SOL_SOCKET, SO_OOBINLINE}, {SOL_SOCKET, SO_KEEPALIVE},
        {IPPROTO_TCP, TCP_NODELAY}, {IPPROTO_TCP, TCP_KEEPIDLE}, {IPPROTO_IPV6, IPV6_V6ONLY},
    };
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        CHECK(rsetsockopt(fd, levels[i][0], levels[i][1], &on, sizeof on) == 0);
        CHECK(option(fd, levels[i][0], levels[i][1]) == 1);
    }
    CHECK(rsetsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size) == 0);
    CHECK(option(fd, SOL_SOCKET, SO_SNDBUF) == size);
    CHECK(rsetsockopt(fd, SOL_RDMA, RDMA_SQSIZE, &large, sizeof large) == 0);
    CHECK(option(fd, SOL_RDMA, RDMA_SQSIZE) == 0xfffe);
    CHECK(rsetsockopt(fd, SOL_RDMA, RDMA_IOMAPSIZE, &many, sizeof many) == 0);
    CHECK(option(fd, SOL_RDMA, RDMA_IOMAPSIZE) == 512);
    struct linger linger = {1, 5}, got;
    socklen_t length = sizeof got;
    CHECK(rsetsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
    CHECK(rgetsockopt(fd, SOL_SOCKET, SO_LINGER, &got, &length) == 0 && got.l_onoff == 1 && got.l_linger == 5);
    FAILED(rsetsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 2), ENOPROTOOPT);
    FAILED(rgetsockopt(fd, IPPROTO_TCP, TCP_INFO, &size, &length), ENOPROTOOPT);
    FAILED(rsetsockopt(fd, SOL_RDMA, RDMA_ROUTE, &size, sizeof size), EOPNOTSUPP);
    FAILED(rsetsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, NULL, 0), EINVAL);
    FAILED(rfcntl(fd, F_SETOWN, 1), EINVAL);
    CHECK(rfcntl(fd, F_SETFD, FD_CLOEXEC) == 0 && rfcntl(fd, F_GETFD) == FD_CLOEXEC);
    CHECK(rclose(fd) == 0);
}

static void walk_nonblocking(void) {
    set_nonblocking(listener, 1);
    FAILED(raccept(listener, NULL, NULL), EAGAIN);
    CHECK(poll_one(listener, POLLIN, 0) == 0);
    int pair[2] = {make(), -1};
    set_nonblocking(pair[0], 1);
    // The listener's thread may answer before this one goes on.
    CHECK(rconnect(pair[0], (struct sockaddr *)&at, sizeof at) == 0 || errno == EINPROGRESS);
    CHECK(poll_one(pair[0], POLLOUT, -1) == POLLOUT);
    CHECK(option(pair[0], SOL_SOCKET, SO_ERROR) == 0);
    FAILED(rconnect(pair[0], (struct sockaddr *)&at, sizeof at), EISCONN);
    CHECK(poll_one(listener, POLLIN, -1) == POLLIN);
    pair[1] = raccept(listener, NULL, NULL);
    CHECK(pair[1] >= 0);
    set_nonblocking(listener, 0);
    char byte;
    FAILED(rrecv(pair[0], &byte, 1, 0), EAGAIN);
    FAILED(rrecv(pair[1], &byte, 1, MSG_DONTWAIT), EAGAIN);
    // The buffers fill, and the rsocket is writable again when the peer has read.
    size_t sent = 0;
    for (ssize_t now; (now = rsend(pair[0], pattern + sent, sizeof pattern - sent, 0)) >= 0;)
        sent += now;
    CHECK(errno == EAGAIN && sent > 100000 && sent < sizeof pattern);
    CHECK(poll_one(pair[0], POLLOUT, 0) == 0);
    CHECK(rrecv(pair[1], received, sent, MSG_WAITALL) == (ssize_t)sent);
    CHECK(memcmp(received, pattern, sent) == 0);
    CHECK(poll_one(pair[0], POLLOUT, -1) == POLLOUT);
    close_pair(pair);
}

static void *send_pattern(void *fd) {
    send_all(*(int *)fd, pattern, sizeof pattern);
    return NULL;
}

static void walk_data(void) {
    int pair[2];
    connect_pair(pair);
    // Pieces, messages, and looking without taking.
    struct iovec out[] = {{"one", 3}, {NULL, 0}, {" two", 4}}, in[] = {{received, 2}, {received + 2, 10}};
    struct msghdr message = {.msg_iov = out, .msg_iovlen = 3};
    CHECK(rsendmsg(pair[0], &message, 0) == 7);
    CHECK(rrecv(pair[1], received, 100, MSG_PEEK) == 7 && memcmp(received, "one two", 7) == 0);
    memset(received, 0, 100);
    CHECK(rreadv(pair[1], in, 2) == 7 && memcmp(received, "one two", 7) == 0);
    CHECK(rwritev(pair[1], out, 3) == 7 && rwrite(pair[1], "!", 1) == 1);
    struct sockaddr_in from;
    socklen_t size = sizeof from;
    CHECK(rrecvfrom(pair[0], received, 8, MSG_WAITALL, (struct sockaddr *)&from, &size) == 8);
    CHECK(memcmp(received, "one two!", 8) == 0 && from.sin_port == at.sin_port);
    CHECK(rsendto(pair[0], "x", 1, 0, NULL, 0) == 1);
    FAILED(rsendto(pair[0], "x", 1, 0, (struct sockaddr *)&at, sizeof at), EISCONN);
    FAILED(rsend(pair[0], "x", 1, MSG_OOB), EOPNOTSUPP);
    message = (struct msghdr){.msg_iov = in, .msg_iovlen = 1};
    CHECK(rrecvmsg(pair[1], &message, 0) == 1 && received[0] == 'x');
    CHECK(rsend(pair[0], "", 0, 0) == 0 && rrecv(pair[1], received, 0, 0) == 0);
    // Both directions at the same time, each thread in blocking calls.
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, send_pattern, &pair[i]) == 0);
    for (int i = 0; i < 2; i++) {
        memset(received, 0, sizeof received);
        CHECK(rrecv(pair[i], received, sizeof received, MSG_WAITALL) == sizeof received);
        CHECK(memcmp(received, pattern, sizeof received) == 0);
    }
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    // Messages of many lengths, one by one.
    for (size_t length = 1, at_byte = 0; length < 5000; at_byte += length, length = length * 5 / 4 + 1) {
        send_all(pair[0], pattern + at_byte, length);
        CHECK(rrecv(pair[1], received, length, MSG_WAITALL) == (ssize_t)length);
        CHECK(memcmp(received, pattern + at_byte, length) == 0);
    }
    close_pair(pair);
}

static void walk_ends(void) {
    int pair[2];
    char byte;
    // Half closed: one side ends sending, and still receives.
    connect_pair(pair);
    CHECK(rsend(pair[0], "last", 4, 0) == 4);
    CHECK(rshutdown(pair[0], SHUT_WR) == 0);
    FAILED(rsend(pair[0], "x", 1, 0), EPIPE);
    CHECK(rrecv(pair[1], received, 100, MSG_WAITALL) == 4);
    CHECK(rrecv(pair[1], received, 100, 0) == 0);
    CHECK(poll_one(pair[1], POLLIN | POLLRDHUP, -1) == (POLLIN | POLLRDHUP));
    CHECK(rsend(pair[1], "answer", 6, 0) == 6);
    CHECK(rclose(pair[1]) == 0);
    CHECK(rrecv(pair[0], received, 100, MSG_WAITALL) == 6 && memcmp(received, "answer", 6) == 0);
    CHECK(rrecv(pair[0], received, 100, 0) == 0);
    CHECK(rclose(pair[0]) == 0);
    // The peer has closed: what it sent is read, then the end, and sending fails.
    connect_pair(pair);
    send_all(pair[1], pattern, 50000);
    CHECK(rclose(pair[1]) == 0);
    CHECK(poll_one(pair[0], POLLIN, -1) == POLLIN);
    CHECK(rrecv(pair[0], received, 60000, MSG_WAITALL) == 50000 && memcmp(received, pattern, 50000) == 0);
    CHECK(rrecv(pair[0], &byte, 1, 0) == 0);
    CHECK(poll_one(pair[0], POLLIN | POLLOUT, -1) == (POLLIN | POLLOUT | POLLHUP));
    FAILED(rsend(pair[0], "x", 1, 0), ECONNRESET);
    CHECK(rclose(pair[0]) == 0);
    // A connection that nobody accepts ends with the rsocket that listens.
    int other = make(), client = make();
    struct sockaddr_in there = at;
    there.sin_port = 0;
    socklen_t size = sizeof there;
    CHECK(rbind(other, (struct sockaddr *)&there, size) == 0 && rlisten(other, 5) == 0);
    CHECK(rgetsockname(other, (struct sockaddr *)&there, &size) == 0 && there.sin_port != 0);
    CHECK(rconnect(client, (struct sockaddr *)&there, sizeof there) == 0);
    CHECK(rclose(other) == 0);
    CHECK(rrecv(client, &byte, 1, 0) == 0);
    CHECK(rclose(client) == 0);
}

static void *write_later(void *fd) {
    usleep(20000);
    CHECK(write(*(int *)fd, "p", 1) == 1);
    return NULL;
}

static void *send_later(void *fd) {
    usleep(20000);
    CHECK(rsend(*(int *)fd, "r", 1, 0) == 1);
    return NULL;
}

static void walk_poll(void) {
    int pair[2], ends[2];
    pthread_t thread;
    connect_pair(pair);
    CHECK(pipe(ends) == 0);
    struct pollfd fds[] = {{.fd = ends[0], .events = POLLIN}, {.fd = -1}, {.fd = pair[0], .events = POLLIN}};
    CHECK(rpoll(fds, 3, 0) == 0 && rpoll(fds, 3, 5) == 0);
    // The ordinary descriptor wakes, then the rsocket.
    CHECK(pthread_create(&thread, NULL, write_later, &ends[1]) == 0);
    CHECK(rpoll(fds, 3, -1) == 1 && fds[0].revents == POLLIN && fds[2].revents == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    char byte;
    CHECK(read(ends[0], &byte, 1) == 1 && byte == 'p');
    CHECK(pthread_create(&thread, NULL, send_later, &pair[1]) == 0);
    CHECK(rpoll(fds, 3, -1) == 1 && fds[0].revents == 0 && fds[2].revents == POLLIN);
    CHECK(pthread_join(thread, NULL) == 0);
    fd_set reads, writes;
    FD_ZERO(&reads);
    FD_ZERO(&writes);
    FD_SET(pair[0], &reads);
    FD_SET(ends[0], &reads);
    FD_SET(pair[0], &writes);
    struct timeval none = {0, 0};
    int most = (pair[0] > ends[0] ? pair[0] : ends[0]) + 1;
    CHECK(rselect(most, &reads, &writes, NULL, &none) == 2);
    CHECK(FD_ISSET(pair[0], &reads) && !FD_ISSET(ends[0], &reads) && FD_ISSET(pair[0], &writes));
    CHECK(rrecv(pair[0], &byte, 1, 0) == 1 && byte == 'r');
    CHECK(rselect(most, &reads, NULL, NULL, &none) == 0 && !FD_ISSET(pair[0], &reads));
    struct pollfd closed = {.fd = 1000, .events = POLLIN};
    CHECK(rpoll(&closed, 1, 0) == 1 && closed.revents == POLLNVAL);
    close(ends[0]);
    close(ends[1]);
    close_pair(pair);
}

static void walk_iomap(void) {
    int fd = make(), size = 2, accepted;
    CHECK(rsetsockopt(fd, SOL_RDMA, RDMA_IOMAPSIZE, &size, sizeof size) == 0);
    CHECK(rconnect(fd, (struct sockaddr *)&at, sizeof at) == 0);
    accepted = raccept(listener, NULL, NULL);
    CHECK(accepted >= 0);
    static unsigned char target[100000], other[4096];
    // The side that set the option writes to buffers of the other.
    CHECK(riomap(accepted, target, sizeof target, PROT_WRITE, 0, 5000) == 5000);
    CHECK(riomap(accepted, other, sizeof other, PROT_WRITE, 0, -1) == (off_t)(uintptr_t)other);
    FAILED(riomap(accepted, other, 1, PROT_WRITE, 0, 0), ENOMEM);
    FAILED(riomap(accepted, other, 1, PROT_EXEC, 0, 0), EINVAL);
    FAILED(riomap(fd, other, 1, PROT_WRITE, 0, 0), ENOMEM);
    CHECK(riomap(fd, other, 1, PROT_NONE, 0, 7) == 7 && riounmap(fd, other, 1) == 0);
    FAILED(riounmap(fd, other, 1), EINVAL);
    char byte;
    CHECK(rsend(accepted, "m", 1, 0) == 1 && rrecv(fd, &byte, 1, 0) == 1);
    CHECK(riowrite(fd, pattern, 90000, 5000 + 10, 0) == 90000);
    CHECK(riowrite(fd, "here", 4, (off_t)(uintptr_t)other, 0) == 4);
    CHECK(riowrite(fd, "x", 1, 1, 0) == (size_t)-1 && errno == EINVAL);
    CHECK(rsend(fd, "d", 1, 0) == 1 && rrecv(accepted, &byte, 1, 0) == 1 && byte == 'd');
    CHECK(target[9] == 0 && memcmp(target + 10, pattern, 90000) == 0 && target[90010] == 0);
    CHECK(memcmp(other, "here", 4) == 0);
    CHECK(riounmap(accepted, target, sizeof target) == 0);
    CHECK(rclose(fd) == 0 && rclose(accepted) == 0);
}

// Sends numbers and checks that they come back.
static void *ask(void *unused) {
    int fd = make();
    CHECK(rconnect(fd, (struct sockaddr *)&at, sizeof at) == 0);
    for (uint64_t number = 0, back; number < 200; number++) {
        CHECK(rsend(fd, &number, 8, 0) == 8);
        CHECK(rrecv(fd, &back, 8, MSG_WAITALL) == 8 && back == number);
    }
    CHECK(rclose(fd) == 0);
    return unused;
}

static void *answer(void *fd_address) {
    int fd = *(int *)fd_address;
    unsigned char bytes[64];
    for (ssize_t got; (got = rrecv(fd, bytes, sizeof bytes, 0)) != 0;) {
        CHECK(got > 0);
        send_all(fd, bytes, got);
    }
    CHECK(rclose(fd) == 0);
    return NULL;
}

static void walk_threads(void) {
    pthread_t clients[6], servers[6];
    int accepted[6];
    for (int i = 0; i < 6; i++)
        CHECK(pthread_create(&clients[i], NULL, ask, NULL) == 0);
    for (int i = 0; i < 6; i++) {
        accepted[i] = raccept(listener, NULL, NULL);
        CHECK(accepted[i] >= 0);
        CHECK(pthread_create(&servers[i], NULL, answer, &accepted[i]) == 0);
    }
    for (int i = 0; i < 6; i++)
        CHECK(pthread_join(clients[i], NULL) == 0 && pthread_join(servers[i], NULL) == 0);
}

static void walk_fork(void) {
    int pair[2], status;
    connect_pair(pair);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char byte;
        FAILED(rsocket(AF_INET, SOCK_STREAM, 0), EOPNOTSUPP);
        FAILED(rrecv(pair[0], &byte, 1, 0), EOPNOTSUPP);
        // The connection stays its parent's.
        CHECK(rclose(pair[0]) == 0 && rclose(pair[1]) == 0);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    char byte;
    CHECK(rsend(pair[0], "f", 1, 0) == 1 && rrecv(pair[1], &byte, 1, 0) == 1 && byte == 'f');
    close_pair(pair);
}

static void *accept_one(void *unused) {
    (void)unused;
    raccept(listener, NULL, NULL);
    return NULL;
}

static void *poll_listener(void *unused) {
    (void)unused;
    struct pollfd fd = {.fd = listener, .events = POLLIN};
    rpoll(&fd, 1, -1);
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    at.sin_family = AF_INET;
    CHECK(inet_pton(AF_INET, argv[1], &at.sin_addr) == 1);
    for (size_t i = 0; i < sizeof pattern; i++)
        pattern[i] = i * 7 + i / 251 + i / 65521;
    listener = make();
    socklen_t size = sizeof at;
    CHECK(rbind(listener, (struct sockaddr *)&at, sizeof at) == 0);
    CHECK(rlisten(listener, 10) == 0);
    CHECK(rgetsockname(listener, (struct sockaddr *)&at, &size) == 0 && at.sin_port != 0);
    walk_errors();
    walk_options();
    walk_nonblocking();
    walk_data();
    walk_ends();
    walk_poll();
    walk_iomap();
    walk_threads();
    cancel(accept_one, NULL);
    cancel(poll_listener, NULL);
    walk_fork();
    CHECK(rclose(listener) == 0);
    return 0;
}
