// Walks the corner cases of librdmacm: events, options and errors. Arguments: the device's address, an address where nobody
// answers (or an empty string), and a multicast group.
#include "connections.h"
#include <pthread.h>
#include <sys/wait.h>

static const char *nobody;

static void walk_devices(void) {
    int count = 0;
    struct ibv_context **list = rdma_get_devices(&count);
    CHECK(list && count >= 1 && list[0] && list[count] == NULL);
    rdma_free_devices(list);
    rdma_free_devices(rdma_get_devices(NULL));
}

static void walk_addresses(void) {
    struct rdma_cm_id *id = new_id(RDMA_PS_TCP);
    struct sockaddr_storage wrong = {.ss_family = AF_UNIX};
    FAILED(rdma_bind_addr(id, NULL), EINVAL);
    FAILED(rdma_bind_addr(id, (struct sockaddr *)&wrong), EINVAL);
    FAILED(rdma_resolve_addr(id, NULL, NULL, 1000), EINVAL);
    FAILED(rdma_resolve_addr(id, NULL, (struct sockaddr *)&wrong, 1000), EINVAL);
    FAILED(rdma_resolve_route(id, 1000), EINVAL);
    FAILED(rdma_connect(id, NULL), EINVAL);
    FAILED(rdma_accept(id, NULL), EINVAL);
    FAILED(rdma_reject(id, NULL, 0), EINVAL);
    FAILED(rdma_disconnect(id), EINVAL);
    FAILED(rdma_establish(id), EINVAL);
    FAILED(rdma_notify(id, IBV_EVENT_COMM_EST), EINVAL);
    // An address of documentation, which no host has.
    struct sockaddr_storage far = at(strchr(own, ':') ? "2001:db8::1" : "192.0.2.1", PORT);
    CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&far, 1000) == 0);
    CHECK(ended(id, RDMA_CM_EVENT_ADDR_ERROR) < 0);
    // It may be tried again.
    struct sockaddr_storage to = at(own, PORT);
    CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000) == 0);
    CHECK(ended(id, RDMA_CM_EVENT_ADDR_RESOLVED) == 0);
    FAILED(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000), EINVAL);
    FAILED(rdma_bind_addr(id, (struct sockaddr *)&to), EINVAL);
    FAILED(rdma_listen(id, 1), EINVAL);
    destroy(id);
    struct rdma_cm_id *none;
    FAILED(rdma_create_id(channel, &none, NULL, 0x7fff), EINVAL);
}

static void walk_ports(void) {
    struct rdma_cm_id *first = listening(PORT, 1), *second = new_id(RDMA_PS_TCP);
    struct sockaddr_storage same = at(own, PORT);
    FAILED(rdma_bind_addr(second, (struct sockaddr *)&same), EADDRINUSE);
    // The failed call has changed nothing; without an address, a port is chosen.
    CHECK(rdma_listen(second, 0) == 0 && rdma_get_src_port(second) != 0);
    struct rdma_cm_id *datagrams = new_id(RDMA_PS_UDP);
    CHECK(rdma_bind_addr(datagrams, (struct sockaddr *)&same) == 0); // another port space
    destroy(datagrams);
    // An id has its port from the bind on, not only while it listens.
    struct rdma_cm_id *bound = new_id(RDMA_PS_TCP), *other = new_id(RDMA_PS_TCP);
    struct sockaddr_storage next_port = at(own, PORT + 1);
    CHECK(rdma_bind_addr(bound, (struct sockaddr *)&next_port) == 0);
    FAILED(rdma_bind_addr(other, (struct sockaddr *)&next_port), EADDRINUSE);
    // A source address binds an id that is not bound.
    FAILED(rdma_resolve_addr(other, (struct sockaddr *)&next_port, (struct sockaddr *)&same, 1000), EADDRINUSE);
    // A source address moves no id that is bound.
    CHECK(rdma_resolve_addr(bound, (struct sockaddr *)&same, (struct sockaddr *)&same, 1000) == 0);
    CHECK(ended(bound, RDMA_CM_EVENT_ADDR_RESOLVED) == 0);
    CHECK(rdma_get_src_port(bound) == ((struct sockaddr_in *)&next_port)->sin_port);
    destroy(bound);
    int yes = 1;
    bound = new_id(RDMA_PS_TCP);
    for (int i = 0; i < 2; i++) {
        struct rdma_cm_id *id = i ? other : bound;
        CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof yes) == 0);
        CHECK(rdma_bind_addr(id, (struct sockaddr *)&next_port) == 0);
    }
    destroy(other);
    destroy(bound);
    destroy(second);
    destroy(first);

    // Ids of both IP versions share a port if each is for its own alone.
    struct rdma_cm_id *any[2] = {new_id(RDMA_PS_TCP), new_id(RDMA_PS_TCP)};
    struct sockaddr_storage anywhere[2] = {at("0.0.0.0", PORT), at("::", PORT)};
    CHECK(rdma_set_option(any[0], RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &yes, sizeof yes) == 0);
    CHECK(rdma_bind_addr(any[0], (struct sockaddr *)&anywhere[0]) == 0);
    FAILED(rdma_bind_addr(any[1], (struct sockaddr *)&anywhere[1]), EADDRNOTAVAIL);
    CHECK(rdma_set_option(any[1], RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &yes, sizeof yes) == 0);
    CHECK(rdma_bind_addr(any[1], (struct sockaddr *)&anywhere[1]) == 0);
    CHECK(rdma_listen(any[0], 1) == 0 && rdma_listen(any[1], 1) == 0);
    struct rdma_cm_id *active = routed(own, PORT);
    with_queue_pair(active);
    CHECK(rdma_connect(active, NULL) == 0);
    reject_and_end(active, requested(any[strchr(own, ':') != NULL], ""));
    destroy(any[0]);
    destroy(any[1]);
}

static void walk_options(void) {
    struct rdma_cm_id *id = new_id(RDMA_PS_TCP);
    uint8_t tos = 0x20, timeout = 16, wrong = 32;
    int yes = 1;
    CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof yes) == 0);
    CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &yes, sizeof yes) == 0);
    CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof tos) == 0);
    CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout) == 0);
    FAILED(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &wrong, sizeof wrong), EINVAL);
    FAILED(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &yes, sizeof yes), EINVAL);
    FAILED(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &tos, sizeof tos), EINVAL);
    FAILED(rdma_set_option(id, RDMA_OPTION_ID, 77, &yes, sizeof yes), ENOSYS);
    FAILED(rdma_set_option(id, 77, 0, &yes, sizeof yes), ENOSYS);
    struct sockaddr_storage to = at(own, PORT);
    CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000) == 0);
    CHECK(ended(id, RDMA_CM_EVENT_ADDR_RESOLVED) == 0);
    CHECK(rdma_resolve_route(id, 1000) == 0);
    CHECK(ended(id, RDMA_CM_EVENT_ROUTE_RESOLVED) == 0);
    CHECK(id->route.path_rec->traffic_class == tos);
    destroy(id);
}

// The backlog counts the requests that the program has not taken.
static void walk_backlog(void) {
    struct rdma_cm_id *listener = listening(PORT, 1), *active[3], *passive[3];
    for (int i = 0; i < 3; i++) {
        active[i] = routed(own, PORT);
        with_queue_pair(active[i]);
        CHECK(rdma_connect(active[i], NULL) == 0);
        passive[i] = requested(listener, "");
    }
    for (int i = 0; i < 3; i++) {
        reject_and_end(active[i], passive[i]);
    }
    destroy(listener);
}

// The event of a request is the listener's: the new id moves and is destroyed before the program acknowledges it.
static void walk_unacknowledged_request(void) {
    struct rdma_cm_id *listener = listening(PORT, 1), *active = routed(own, PORT);
    with_queue_pair(active);
    CHECK(rdma_connect(active, NULL) == 0);
    struct rdma_cm_event *event = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_event_channel *other = rdma_create_event_channel();
    CHECK(rdma_migrate_id(event->id, other) == 0 && event->id->channel == other);
    reject_and_end(active, event->id);
    CHECK(rdma_ack_cm_event(event) == 0);
    rdma_destroy_event_channel(other);
    destroy(listener);
}

static struct rdma_event_channel *destination;
static volatile int has_moved;

static void *move(void *id) {
    CHECK(rdma_migrate_id(id, destination) == 0);
    has_moved = 1;
    return NULL;
}

// An id moves once all events of its old channel are acknowledged.
static void walk_migration(void) {
    struct rdma_cm_id *id = new_id(RDMA_PS_TCP);
    struct sockaddr_storage to = at(own, PORT);
    CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000) == 0);
    struct rdma_cm_event *event = next(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    destination = rdma_create_event_channel();
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, move, id) == 0);
    usleep(50000);
    CHECK(!has_moved);
    CHECK(rdma_ack_cm_event(event) == 0);
    CHECK(pthread_join(thread, NULL) == 0 && has_moved && id->channel == destination);
    destroy(id);
    rdma_destroy_event_channel(destination);
}

// Connects at a loopback address of the family that the device does not have, where all devices are.
static void walk_loopback(void) {
    const char *device = own;
    own = strchr(device, ':') ? "127.0.0.1" : "::1";
    struct rdma_cm_id *listener = new_id(RDMA_PS_TCP);
    struct sockaddr_storage to = at(own, PORT);
    CHECK(rdma_bind_addr(listener, (struct sockaddr *)&to) == 0 && rdma_listen(listener, 1) == 0);
    struct rdma_cm_id *active = routed(own, PORT);
    with_queue_pair(active);
    CHECK(rdma_connect(active, NULL) == 0);
    struct rdma_cm_id *passive = requested(listener, "");
    accept_and_end(active, passive);
    destroy(listener);
    own = device;
    // Another device may have another address of its own family.
    if (!strchr(own, ':')) {
        struct rdma_cm_id *id = new_id(RDMA_PS_TCP);
        struct sockaddr_storage strange = at("127.41.0.77", PORT);
        FAILED(rdma_bind_addr(id, (struct sockaddr *)&strange), ENODEV);
        destroy(id);
    }
}

// A process that was forked after its parent used librdmacm connects with objects of its own.
static void walk_fork(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        channel = rdma_create_event_channel();
        CHECK(channel);
        struct rdma_cm_id *listener = listening(PORT + 7, 1), *active = routed(own, PORT + 7);
        with_queue_pair(active);
        CHECK(rdma_connect(active, NULL) == 0);
        struct rdma_cm_id *passive = requested(listener, "");
        reject_and_end(active, passive);
        destroy(listener);
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

// The queue pair of an id has at most `outstanding` READs and atomics in flight, and serves at most `served` of its peer's.
static void has_depths(struct rdma_cm_id *id, int outstanding, int served) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK(ibv_query_qp(id->qp, &attr, IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC, &init) == 0);
    CHECK(attr.max_rd_atomic == outstanding && attr.max_dest_rd_atomic == served);
}

// Connects, moves both ids to a channel of their own, and disconnects.
static void walk_connection(void) {
    struct rdma_cm_id *listener = listening(PORT, 4), *active = routed(own, PORT);
    with_queue_pair(active);
    struct rdma_conn_param wanted = {.private_data = "hello", .private_data_len = 5, .retry_count = 7, .initiator_depth = 16, .responder_resources = 16};
    struct rdma_conn_param large = {.private_data = buffer, .private_data_len = 57};
    FAILED(rdma_connect(active, &large), EINVAL);
    CHECK(rdma_connect(active, &wanted) == 0);
    FAILED(rdma_connect(active, &wanted), EINVAL);
    struct rdma_cm_id *passive = requested(listener, "hello");
    struct rdma_event_channel *other = rdma_create_event_channel();
    CHECK(other && rdma_migrate_id(passive, other) == 0 && passive->channel == other);
    with_queue_pair(passive);
    struct rdma_conn_param answer = {.private_data = "welcome", .private_data_len = 7, .rnr_retry_count = 7, .initiator_depth = 2, .responder_resources = 3};
    // A program that has its own queue pair moves it before it accepts, with the PSN that the reply will have.
    struct ibv_qp_attr before = {.qp_state = IBV_QPS_RTR}, after = before;
    int mask;
    CHECK(rdma_init_qp_attr(passive, &before, &mask) == 0 && mask & IBV_QP_RQ_PSN);
    CHECK(rdma_accept(passive, &answer) == 0);
    CHECK(rdma_init_qp_attr(passive, &after, &mask) == 0 && before.rq_psn == after.rq_psn);
    struct rdma_cm_event *event = next(channel, RDMA_CM_EVENT_ESTABLISHED);
    CHECK(event->id == active && memcmp(event->param.conn.private_data, "welcome", 7) == 0);
    CHECK(event->param.conn.initiator_depth == 3 && event->param.conn.responder_resources == 2);
    CHECK(rdma_ack_cm_event(event) == 0);
    CHECK(ended(passive, RDMA_CM_EVENT_ESTABLISHED) == 0);
    has_no_event(channel);
    CHECK(state_of(active) == IBV_QPS_RTS && state_of(passive) == IBV_QPS_RTS);
    // Both sides have the depths of the reply.
    has_depths(active, 3, 2);
    has_depths(passive, 2, 3);
    FAILED(rdma_establish(active), EINVAL); // it has a queue pair
    FAILED(rdma_notify(passive, IBV_EVENT_COMM_EST), EISCONN);
    FAILED(rdma_notify(passive, IBV_EVENT_PATH_MIG_ERR), EINVAL);
    CHECK(rdma_disconnect(active) == 0 && state_of(active) == IBV_QPS_ERR);
    // An event that waits moves with its id.
    await_event(other);
    CHECK(rdma_migrate_id(passive, channel) == 0 && passive->channel == channel);
    has_no_event(other);
    struct rdma_cm_id *both[2] = {active, passive};
    for (int left = 2; left; left--) {
        event = next(channel, RDMA_CM_EVENT_DISCONNECTED);
        CHECK(event->id == both[0] || event->id == both[1]);
        both[event->id == both[1]] = NULL;
        CHECK(rdma_ack_cm_event(event) == 0);
    }
    // The event leaves the queue pair as it is.
    CHECK(state_of(passive) == IBV_QPS_RTS);
    CHECK(rdma_disconnect(passive) == 0 && state_of(passive) == IBV_QPS_ERR);
    destroy(passive);
    destroy(active);
    destroy(listener);
    rdma_destroy_event_channel(other);
}

// The program establishes the connections of its own queue pairs.
static void walk_establish(void) {
    struct rdma_cm_id *listener = listening(PORT, 4), *active = routed(own, PORT);
    struct rdma_conn_param wanted = {.qp_num = 77, .retry_count = 7, .initiator_depth = 16, .responder_resources = 16};
    CHECK(rdma_connect(active, &wanted) == 0);
    struct rdma_cm_id *passive = requested(listener, "");
    struct rdma_conn_param answer = {.qp_num = 78, .rnr_retry_count = 7, .initiator_depth = 2, .responder_resources = 3};
    CHECK(rdma_accept(passive, &answer) == 0);
    struct rdma_cm_event *event = next(channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
    CHECK(event->id == active && event->param.conn.qp_num == 78);
    CHECK(rdma_ack_cm_event(event) == 0);
    struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR}, rts = {.qp_state = IBV_QPS_RTS};
    int mask;
    CHECK(rdma_init_qp_attr(active, &rtr, &mask) == 0 && rtr.max_dest_rd_atomic == 2);
    CHECK(rdma_init_qp_attr(active, &rts, &mask) == 0 && rts.max_rd_atomic == 3);
    // The first message arrived before the RTU.
    CHECK(rdma_notify(passive, IBV_EVENT_COMM_EST) == 0);
    CHECK(ended(passive, RDMA_CM_EVENT_ESTABLISHED) == 0);
    CHECK(rdma_establish(active) == 0);
    FAILED(rdma_establish(active), EINVAL);
    destroy(active); // disconnects
    CHECK(ended(passive, RDMA_CM_EVENT_DISCONNECTED) == 0);
    destroy(passive);
    destroy(listener);
}

static void walk_rejections(void) {
    struct rdma_cm_id *active = routed(own, PORT + 1);
    with_queue_pair(active);
    CHECK(rdma_connect(active, NULL) == 0);
    CHECK(ended(active, RDMA_CM_EVENT_REJECTED) == 8); // no such service
    destroy(active);
    struct rdma_cm_id *listener = listening(PORT, 4);
    active = routed(own, PORT);
    with_queue_pair(active);
    CHECK(rdma_connect(active, NULL) == 0);
    struct rdma_cm_id *passive = requested(listener, "");
    CHECK(rdma_reject(passive, "no", 2) == 0);
    struct rdma_cm_event *event = next(channel, RDMA_CM_EVENT_REJECTED);
    CHECK(event->id == active && event->status == 28); // by the program
    CHECK(memcmp(event->param.conn.private_data, "no", 2) == 0);
    CHECK(rdma_ack_cm_event(event) == 0);
    destroy(passive);
    destroy(active);
    // A request that the program has not taken is refused when the listener ends.
    active = routed(own, PORT);
    with_queue_pair(active);
    CHECK(rdma_connect(active, NULL) == 0);
    await_event(channel);
    destroy(listener);
    CHECK(ended(active, RDMA_CM_EVENT_REJECTED) == 28);
    destroy(active);
}

static void walk_timeout(void) {
    struct rdma_cm_id *active = routed(nobody, PORT);
    with_queue_pair(active);
    CHECK(rdma_connect(active, NULL) == 0);
    CHECK(ended(active, RDMA_CM_EVENT_UNREACHABLE) == -ETIMEDOUT);
    destroy(active);
}

static void walk_group(const char *ip) {
    struct rdma_cm_id *id = new_id(RDMA_PS_UDP);
    struct sockaddr_storage to = at(own, 0), group = at(ip, 0);
    FAILED(rdma_join_multicast(id, (struct sockaddr *)&group, NULL), EINVAL); // not bound
    CHECK(rdma_bind_addr(id, (struct sockaddr *)&to) == 0);
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_UD, .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
    CHECK(rdma_create_qp(id, NULL, &init) == 0 && state_of(id) == IBV_QPS_RTS);
    FAILED(rdma_leave_multicast(id, (struct sockaddr *)&group), EADDRNOTAVAIL);
    if (strcmp(own, "::1") == 0) {
        FAILED(rdma_join_multicast(id, (struct sockaddr *)&group, NULL), ENETUNREACH);
        destroy(id);
        return;
    }
    CHECK(rdma_join_multicast(id, (struct sockaddr *)&group, &group) == 0);
    struct rdma_cm_event *event = next(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
    CHECK(event->id == id && event->status == 0 && event->param.ud.private_data == &group);
    CHECK(event->param.ud.qp_num == 0xffffff && event->param.ud.ah_attr.is_global);
    CHECK(rdma_ack_cm_event(event) == 0);
    REFUSED(ibv_destroy_qp(id->qp), EBUSY);
    CHECK(rdma_leave_multicast(id, (struct sockaddr *)&group) == 0);
    FAILED(rdma_leave_multicast(id, (struct sockaddr *)&group), EADDRNOTAVAIL);
    destroy(id);
}

static void *get_event(void *from) {
    struct rdma_cm_event *event;
    rdma_get_cm_event(from, &event);
    return NULL;
}

static void *get_request(void *listener) {
    struct rdma_cm_id *id;
    rdma_get_request(listener, &id);
    return NULL;
}

static void walk_cancellation(void) {
    cancel(get_event, channel);
    struct rdma_cm_id *id;
    struct sockaddr_storage to = at(own, 0);
    CHECK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_bind_addr(id, (struct sockaddr *)&to) == 0 && rdma_listen(id, 1) == 0);
    cancel(get_request, id);
    destroy(id);
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    own = argv[1], nobody = argv[2];
    buffer = calloc(1, 256);
    channel = rdma_create_event_channel();
    CHECK(channel);
    struct rdma_cm_event *event;
    CHECK(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
    FAILED(rdma_get_cm_event(channel, &event), EAGAIN);
    CHECK(fcntl(channel->fd, F_SETFL, 0) == 0);
    walk_devices();
    walk_addresses();
    walk_ports();
    walk_options();
    walk_backlog();
    walk_unacknowledged_request();
    walk_migration();
    walk_loopback();
    walk_fork();
    walk_connection();
    walk_establish();
    walk_rejections();
    if (*nobody)
        walk_timeout();
    walk_group(argv[3]);
    walk_cancellation();
    has_no_event(channel);
    rdma_destroy_event_channel(channel);
    free(buffer);
    return 0;
}
