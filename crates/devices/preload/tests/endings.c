// Walks the ends of connections that librdmacm makes: how they are ended, and their addresses. Argument: the device's
// address.
#include "connections.h"

#define LENGTH 64

// Connects two ids; the passive one has its own channel.
static void connect_pair(struct rdma_cm_id **active, struct rdma_cm_id **passive) {
    struct rdma_cm_id *listener = listening(PORT, 4);
    struct rdma_conn_param wanted = {.retry_count = 7, .rnr_retry_count = 7};
    *active = routed(own, PORT);
    with_queue_pair(*active);
    CHECK(rdma_connect(*active, &wanted) == 0);
    *passive = requested(listener, "");
    struct rdma_event_channel *other = rdma_create_event_channel();
    CHECK(other && rdma_migrate_id(*passive, other) == 0);
    with_queue_pair(*passive);
    CHECK(rdma_accept(*passive, &wanted) == 0);
    CHECK(ended(*active, RDMA_CM_EVENT_ESTABLISHED) == 0);
    CHECK(ended(*passive, RDMA_CM_EVENT_ESTABLISHED) == 0);
    destroy(listener);
}

// A message is sent, and its sender disconnects. If the receiver polls, it gets the message before the event.
static void walk_last_message(int polls) {
    struct rdma_cm_id *active, *passive;
    connect_pair(&active, &passive);
    struct ibv_mr *region = ibv_reg_mr(passive->pd, buffer, LENGTH, IBV_ACCESS_LOCAL_WRITE);
    CHECK(region);
    struct ibv_sge piece = {.addr = (uintptr_t)buffer, .length = LENGTH, .lkey = region->lkey};
    struct ibv_recv_wr receive = {.wr_id = 5, .sg_list = &piece, .num_sge = 1}, *bad_receive;
    struct ibv_send_wr send = {.wr_id = 6, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED, .sg_list = &piece, .num_sge = 1}, *bad_send;
    CHECK(ibv_post_recv(passive->qp, &receive, &bad_receive) == 0);
    CHECK(ibv_post_send(active->qp, &send, &bad_send) == 0);
    struct ibv_wc done;
    while (ibv_poll_cq(active->send_cq, 1, &done) == 0)
        ;
    CHECK(done.status == IBV_WC_SUCCESS && done.wr_id == 6);
    CHECK(rdma_disconnect(active) == 0);
    // The other side has answered by now.
    CHECK(ended(active, RDMA_CM_EVENT_DISCONNECTED) == 0);
    if (polls) {
        has_no_event(passive->channel);
        CHECK(ibv_poll_cq(passive->recv_cq, 1, &done) == 1);
        CHECK(done.status == IBV_WC_SUCCESS && done.wr_id == 5 && done.byte_len == LENGTH);
    }
    CHECK(ended(passive, RDMA_CM_EVENT_DISCONNECTED) == 0);
    struct rdma_event_channel *other = passive->channel;
    destroy(active);
    destroy(passive);
    rdma_destroy_event_channel(other);
    CHECK(ibv_dereg_mr(region) == 0);
}

// The requester gives up before its request is accepted. The passive side gets no event of an id that it does not know.
static void walk_withdrawn_request(void) {
    struct rdma_cm_id *listener = listening(PORT, 4), *first = routed(own, PORT), *second = routed(own, PORT);
    with_queue_pair(first);
    with_queue_pair(second);
    CHECK(rdma_connect(first, NULL) == 0);
    struct rdma_cm_id *withdrawn = requested(listener, "");
    destroy(first);
    // Messages arrive in the order in which they were sent.
    CHECK(rdma_connect(second, NULL) == 0);
    struct rdma_cm_id *passive = requested(listener, "");
    with_queue_pair(withdrawn);
    FAILED(rdma_accept(withdrawn, NULL), EINVAL);
    FAILED(rdma_reject(withdrawn, NULL, 0), EINVAL);
    destroy(withdrawn);
    CHECK(rdma_reject(passive, NULL, 0) == 0);
    CHECK(ended(second, RDMA_CM_EVENT_REJECTED) == 28); // by the program
    destroy(second);
    destroy(passive);
    destroy(listener);
}

static int is_loopback(struct sockaddr *address) {
    struct sockaddr_in *v4 = (struct sockaddr_in *)address;
    return v4->sin_family == AF_INET && v4->sin_addr.s_addr == htonl(INADDR_LOOPBACK);
}

// Both ends of a connection to a loopback address have it, but reach each other at the device's.
static void check_loopback(struct rdma_cm_id *id) {
    CHECK(is_loopback(rdma_get_local_addr(id)) && is_loopback(rdma_get_peer_addr(id)));
    CHECK(memcmp(&id->route.addr.addr.ibaddr.sgid, &id->route.addr.addr.ibaddr.dgid, 16) == 0);
}

// An id at a loopback address is bound to no device, and listens on all.
static void walk_loopback(void) {
    struct rdma_cm_id *listener = new_id(RDMA_PS_TCP);
    struct sockaddr_storage here = at("127.0.0.1", PORT);
    CHECK(rdma_bind_addr(listener, (struct sockaddr *)&here) == 0 && listener->verbs == NULL);
    CHECK(rdma_listen(listener, 4) == 0);
    struct rdma_cm_id *active = routed("127.0.0.1", PORT);
    check_loopback(active);
    with_queue_pair(active);
    CHECK(rdma_connect(active, NULL) == 0);
    struct rdma_cm_id *passive = requested(listener, "");
    check_loopback(passive);
    accept_and_end(active, passive);
    destroy(listener);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    own = argv[1];
    buffer = calloc(1, LENGTH);
    channel = rdma_create_event_channel();
    CHECK(buffer && channel);
    walk_last_message(1);
    walk_last_message(0);
    walk_withdrawn_request();
    if (strncmp(own, "127.", 4) != 0)
        walk_loopback();
    has_no_event(channel);
    rdma_destroy_event_channel(channel);
    free(buffer);
    return 0;
}
