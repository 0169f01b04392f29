// What programs that walk librdmacm share: ids at an address, and the events of a channel.
#include "verbs.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#define PORT 20777

static struct rdma_event_channel *channel;
static const char *own;

static inline struct sockaddr_storage at(const char *ip, int port) {
    struct sockaddr_storage out = {0};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&out;
    if (strchr(ip, ':')) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
        CHECK(inet_pton(AF_INET6, ip, &v6->sin6_addr) == 1);
    } else {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        CHECK(inet_pton(AF_INET, ip, &v4->sin_addr) == 1);
    }
    return out;
}

// Waits for an event, at most a minute.
static inline void await_event(struct rdma_event_channel *from) {
    struct pollfd fd = {.fd = from->fd, .events = POLLIN};
    CHECK(poll(&fd, 1, 60000) == 1);
}

static inline struct rdma_cm_event *next(struct rdma_event_channel *from, enum rdma_cm_event_type kind) {
    struct rdma_cm_event *event;
    await_event(from);
    CHECK(rdma_get_cm_event(from, &event) == 0);
    if (event->event != kind)
        fprintf(stderr, "%s, status %d\n", rdma_event_str(event->event), event->status);
    CHECK(event->event == kind);
    return event;
}

// Takes the event of an id and acknowledges it; returns its status.
static inline int ended(struct rdma_cm_id *id, enum rdma_cm_event_type kind) {
    struct rdma_cm_event *event = next(id->channel, kind);
    CHECK(event->id == id);
    int status = event->status;
    CHECK(rdma_ack_cm_event(event) == 0);
    return status;
}

static inline void has_no_event(struct rdma_event_channel *from) {
    struct pollfd fd = {.fd = from->fd, .events = POLLIN};
    CHECK(poll(&fd, 1, 0) == 0);
}

static inline struct rdma_cm_id *new_id(enum rdma_port_space space) {
    struct rdma_cm_id *id;
    CHECK(rdma_create_id(channel, &id, NULL, space) == 0);
    CHECK(id->channel == channel && id->ps == space && id->verbs == NULL && id->qp == NULL);
    return id;
}

static inline struct rdma_cm_id *routed(const char *ip, int port) {
    struct rdma_cm_id *id = new_id(RDMA_PS_TCP);
    struct sockaddr_storage to = at(ip, port);
    CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000) == 0);
    CHECK(ended(id, RDMA_CM_EVENT_ADDR_RESOLVED) == 0 && id->verbs && id->port_num == 1);
    CHECK(ntohs(rdma_get_dst_port(id)) == port && rdma_get_src_port(id) != 0);
    CHECK(rdma_resolve_route(id, 1000) == 0);
    CHECK(ended(id, RDMA_CM_EVENT_ROUTE_RESOLVED) == 0 && id->route.num_paths == 1);
    return id;
}

static inline struct rdma_cm_id *listening(int port, int backlog) {
    struct rdma_cm_id *id = new_id(RDMA_PS_TCP);
    struct sockaddr_storage to = at(own, port);
    CHECK(rdma_bind_addr(id, (struct sockaddr *)&to) == 0 && id->verbs);
    CHECK(rdma_listen(id, backlog) == 0 && ntohs(rdma_get_src_port(id)) == port);
    return id;
}

static inline void with_queue_pair(struct rdma_cm_id *id) {
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
    CHECK(rdma_create_qp(id, NULL, &init) == 0 && id->qp && id->qp->state == IBV_QPS_INIT);
    FAILED(rdma_create_qp(id, NULL, &init), EINVAL);
}

static inline enum ibv_qp_state state_of(struct rdma_cm_id *id) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK(ibv_query_qp(id->qp, &attr, IBV_QP_STATE, &init) == 0);
    return attr.qp_state;
}

static inline struct rdma_cm_id *requested(struct rdma_cm_id *listener, const char *data) {
    struct rdma_cm_event *event = next(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK(event->listen_id == listener && event->id != listener && event->id->verbs);
    CHECK(!listener->verbs || event->id->verbs == listener->verbs);
    CHECK(event->param.conn.private_data_len >= strlen(data));
    CHECK(memcmp(event->param.conn.private_data, data, strlen(data)) == 0);
    struct rdma_cm_id *id = event->id;
    CHECK(rdma_ack_cm_event(event) == 0);
    return id;
}

static inline void destroy(struct rdma_cm_id *id) {
    if (id->qp)
        rdma_destroy_qp(id);
    CHECK(rdma_destroy_id(id) == 0);
}

// Accepts the request of an active id, and ends the connection.
static inline void accept_and_end(struct rdma_cm_id *active, struct rdma_cm_id *passive) {
    with_queue_pair(passive);
    CHECK(rdma_accept(passive, NULL) == 0);
    for (int left = 2; left; left--) {
        struct rdma_cm_event *event = next(channel, RDMA_CM_EVENT_ESTABLISHED);
        CHECK(rdma_ack_cm_event(event) == 0);
    }
    destroy(active);
    CHECK(ended(passive, RDMA_CM_EVENT_DISCONNECTED) == 0);
    destroy(passive);
}

// Rejects the request of an active id.
static inline void reject_and_end(struct rdma_cm_id *active, struct rdma_cm_id *passive) {
    CHECK(rdma_reject(passive, NULL, 0) == 0);
    CHECK(ended(active, RDMA_CM_EVENT_REJECTED) == 28); // by the program
    destroy(passive);
    destroy(active);
}
