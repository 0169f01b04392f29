// Peers of rsockets that break their protocol: each ends its own connection, and no other. Argument: the device's address.
#include "connections.h"
#include <endian.h>
#include <rdma/rsocket.h>

#define DEPTH 100
// A message in immediate data: the sender has written this number of bytes.
#define DATA(length) (length)

// Private data of a connection (rs_conn_data): numbers are in network order.
struct target {
    uint64_t addr;
    uint32_t key, length;
};
struct conn_data {
    uint8_t version, flags;
    uint16_t credits;
    uint8_t reserved[3], iomaps;
    struct target targets, buffer;
};
// An entry of the list that follows the two targets.
struct iomap {
    uint64_t offset;
    struct target target;
};

static struct sockaddr_in server_at;
static int server;
static struct rdma_cm_id *stranger;
// Private data of the rsocket that has accepted the stranger.
static struct conn_data reply;

static void prepare(struct rdma_cm_id *id) {
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .sq_sig_all = 1, .cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1}};
    CHECK(rdma_create_qp(id, NULL, &init) == 0);
    struct ibv_recv_wr wr = {0}, *bad;
    for (int i = 0; i < DEPTH; i++)
        CHECK(ibv_post_recv(id->qp, &wr, &bad) == 0);
    mr = ibv_reg_mr(id->pd, buffer, SIZE, ALL_ACCESS);
    CHECK(mr);
}

// Private data without fault.
static struct conn_data valid(void) {
    struct target list = {htobe64((uintptr_t)buffer), htonl(mr->rkey), htonl(2)}, half = list;
    half.length = htonl(4096);
    struct conn_data data = {.version = 1, .credits = htons(DEPTH), .targets = list, .buffer = half};
    return data;
}

static struct rdma_conn_param param_of(struct conn_data *data) {
    struct rdma_conn_param param = {.private_data = data, .private_data_len = sizeof *data, .retry_count = 7, .rnr_retry_count = 7};
    return param;
}

static void begin_stranger(void) {
    stranger = routed(own, ntohs(server_at.sin_port));
    prepare(stranger);
}

static void end_stranger(void) {
    struct ibv_mr *own_mr = mr;
    destroy(stranger);
    CHECK(ibv_dereg_mr(own_mr) == 0);
}

// Connects a stranger; returns the rsocket that has accepted it.
static int accepted(struct conn_data data) {
    struct rdma_conn_param param = param_of(&data);
    CHECK(rdma_connect(stranger, &param) == 0);
    struct rdma_cm_event *event = next(channel, RDMA_CM_EVENT_ESTABLISHED);
    memcpy(&reply, event->param.conn.private_data, sizeof reply);
    CHECK(rdma_ack_cm_event(event) == 0);
    int fd = raccept(server, NULL, NULL);
    CHECK(fd >= 0);
    return fd;
}

// Closes the rsocket that has accepted the stranger.
static void end_accepted(int fd) {
    CHECK(rclose(fd) == 0);
    CHECK(ended(stranger, RDMA_CM_EVENT_DISCONNECTED) == 0);
    end_stranger();
}

static void post(struct ibv_send_wr wr) {
    struct ibv_send_wr *bad;
    CHECK(ibv_post_send(stranger->qp, &wr, &bad) == 0);
    CHECK(next_completion(stranger->send_cq).status == IBV_WC_SUCCESS);
}

static void send_message(unsigned message) {
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = htonl(message)};
    post(wr);
}

// Two rsockets exchange a byte: the thread that serves connections lives.
static void exchange(void) {
    int fd = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(rconnect(fd, (struct sockaddr *)&server_at, sizeof server_at) == 0);
    int other = raccept(server, NULL, NULL);
    char byte = 5;
    CHECK(other >= 0 && rsend(fd, &byte, 1, 0) == 1);
    byte = 0;
    CHECK(rrecv(other, &byte, 1, 0) == 1 && byte == 5);
    CHECK(rclose(fd) == 0 && rclose(other) == 0);
}

// A request without a list of targets.
static void walk_request(void) {
    begin_stranger();
    struct conn_data data = valid();
    data.targets.length = 0;
    struct rdma_conn_param param = param_of(&data);
    CHECK(rdma_connect(stranger, &param) == 0);
    CHECK(ended(stranger, RDMA_CM_EVENT_REJECTED) == 28); // by the program
    end_stranger();
    exchange();
}

// A reply without a list of targets.
static void walk_reply(void) {
    struct rdma_cm_id *listener = listening(PORT + 1, 1);
    struct sockaddr_in to = server_at;
    to.sin_port = htons(PORT + 1);
    int fd = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(rfcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    FAILED(rconnect(fd, (struct sockaddr *)&to, sizeof to), EINPROGRESS);
    stranger = requested(listener, "\1");
    prepare(stranger);
    struct conn_data data = valid();
    data.targets.length = 0;
    struct rdma_conn_param param = param_of(&data);
    CHECK(rdma_accept(stranger, &param) == 0);
    struct pollfd entry = {.fd = fd, .events = POLLOUT};
    CHECK(rpoll(&entry, 1, 60000) == 1);
    int error = 0;
    socklen_t size = sizeof error;
    CHECK(rgetsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == EPROTONOSUPPORT);
    CHECK(rclose(fd) == 0);
    CHECK(ended(stranger, RDMA_CM_EVENT_ESTABLISHED) == 0);
    CHECK(ended(stranger, RDMA_CM_EVENT_DISCONNECTED) == 0);
    end_stranger();
    destroy(listener);
    exchange();
}

// The rsocket reads `length` bytes, and then nothing more.
static void reads_and_fails(int fd, size_t length) {
    static char bytes[1 << 20];
    ssize_t got;
    while (length > 0) {
        got = rrecv(fd, bytes, sizeof bytes, 0);
        CHECK(got > 0 && got <= length);
        length -= got;
    }
    FAILED(rrecv(fd, bytes, sizeof bytes, 0), EPROTO);
    CHECK(rrecv(fd, bytes, sizeof bytes, 0) == 0);
    FAILED(rsend(fd, bytes, 1, 0), ECONNRESET);
}

// Messages of more bytes than the receive buffer has.
static void walk_data(void) {
    begin_stranger();
    int fd = accepted(valid());
    send_message(DATA(0x1fffffff));
    reads_and_fails(fd, 0);
    end_accepted(fd);

    begin_stranger();
    fd = accepted(valid());
    int room = 0;
    socklen_t size = sizeof room;
    CHECK(rgetsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, &size) == 0 && room > 2);
    // All of the buffer was announced, and nothing was read.
    send_message(DATA(room - 1));
    send_message(DATA(1));
    send_message(DATA(1));
    reads_and_fails(fd, room);
    end_accepted(fd);
    exchange();
}

// More messages than the credits allow.
static void walk_credits(void) {
    begin_stranger();
    int fd = accepted(valid());
    int credits = ntohs(reply.credits);
    CHECK(credits < DEPTH);
    for (int i = 0; i <= credits; i++)
        send_message(DATA(1));
    reads_and_fails(fd, credits);
    end_accepted(fd);
    exchange();
}

// A receive buffer that ends behind the largest address.
static void walk_address(void) {
    begin_stranger();
    struct conn_data data = valid();
    data.buffer.addr = htobe64(UINT64_MAX - 1);
    int fd = accepted(data);
    char bytes[16] = {0};
    ssize_t sent;
    while ((sent = rsend(fd, bytes, sizeof bytes, 0)) > 0)
        ;
    CHECK(sent == -1 && errno == ECONNRESET);
    end_accepted(fd);
    exchange();
}

// A mapped buffer that ends behind the largest offset and the largest address.
static void walk_mapping(void) {
    begin_stranger();
    int fd = accepted(valid());
    struct iomap *entry = (struct iomap *)buffer;
    entry->offset = UINT64_MAX - 1;
    entry->target.addr = UINT64_MAX - 1;
    entry->target.key = mr->rkey;
    entry->target.length = 100;
    struct ibv_sge piece = {(uintptr_t)entry, sizeof *entry, mr->lkey};
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .sg_list = &piece, .num_sge = 1};
    wr.wr.rdma.remote_addr = be64toh(reply.targets.addr) + 2 * sizeof(struct target);
    wr.wr.rdma.rkey = ntohl(reply.targets.key);
    post(wr);
    char bytes[16] = {0};
    CHECK(riowrite(fd, bytes, sizeof bytes, 3, 0) == sizeof bytes);
    ssize_t sent;
    while ((sent = rsend(fd, bytes, sizeof bytes, 0)) > 0)
        ;
    CHECK(sent == -1 && errno == ECONNRESET);
    end_accepted(fd);
    exchange();
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    alarm(60); // ends the program if a connection is not served
    own = argv[1];
    buffer = aligned_alloc(4096, SIZE);
    channel = rdma_create_event_channel();
    CHECK(buffer && channel);
    memset(buffer, 0, SIZE);
    server_at.sin_family = AF_INET;
    server_at.sin_port = htons(PORT);
    CHECK(inet_pton(AF_INET, own, &server_at.sin_addr) == 1);
    server = rsocket(AF_INET, SOCK_STREAM, 0);
    int iomaps = 2;
    CHECK(rsetsockopt(server, SOL_RDMA, RDMA_IOMAPSIZE, &iomaps, sizeof iomaps) == 0);
    CHECK(rbind(server, (struct sockaddr *)&server_at, sizeof server_at) == 0 && rlisten(server, 5) == 0);
    walk_request();
    walk_reply();
    walk_data();
    walk_credits();
    walk_address();
    walk_mapping();
    CHECK(rclose(server) == 0);
    rdma_destroy_event_channel(channel);
    free(buffer);
    return 0;
}
