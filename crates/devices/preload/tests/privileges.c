// A server changes its user, its root directory or both after it has opened the device, as daemons do: clients still reach
// it, by queue pairs whose numbers are exchanged elsewhere and by librdmacm. Arguments: the device's address; user, root or
// both.
#include "connections.h"
#include <grp.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define NOBODY 65534

static int peer;

static unsigned exchanged(unsigned own) {
    unsigned theirs;
    CHECK(write(peer, &own, sizeof own) == sizeof own && read(peer, &theirs, sizeof theirs) == sizeof theirs);
    return theirs;
}

static void drop(const char *what) {
    if (strcmp(what, "user") != 0)
        CHECK(chroot(getenv("ADVERB_SHM")) == 0 && chdir("/") == 0);
    if (strcmp(what, "root") != 0)
        CHECK(setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
}

// Sends a message and waits for the peer's, by an event if there is a channel.
static void pass_messages(struct ibv_qp *qp, struct ibv_cq *cq, struct ibv_comp_channel *events) {
    struct ibv_sge sge = {(uintptr_t)buffer + 1000, 6, mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
    strcpy(buffer + 1000, "hello");
    CHECK(ibv_post_send(qp, &wr, &bad) == 0);
    for (int left = 2; left;) {
        struct ibv_wc wc;
        if (ibv_poll_cq(cq, 1, &wc) == 1) {
            CHECK(wc.status == IBV_WC_SUCCESS);
            left--;
        } else if (events && left == 1) {
            struct ibv_cq *found;
            void *found_context;
            CHECK(ibv_req_notify_cq(cq, 0) == 0);
            if (ibv_poll_cq(cq, 1, &wc) == 1) {
                CHECK(wc.status == IBV_WC_SUCCESS);
                break;
            }
            struct pollfd fd = {.fd = events->fd, .events = POLLIN};
            CHECK(poll(&fd, 1, 60000) == 1);
            CHECK(ibv_get_cq_event(events, &found, &found_context) == 0 && found == cq);
            ibv_ack_cq_events(cq, 1);
        }
    }
    CHECK(strcmp(buffer, "hello") == 0);
    memset(buffer, 0, 100);
    exchanged(0);
}

static void walk_queue_pairs(int is_server, const char *what) {
    struct ibv_comp_channel *events = ibv_create_comp_channel(context);
    // Without /proc, a process that has changed its user cannot create a channel.
    CHECK(events || (is_server && strcmp(what, "both") == 0));
    struct ibv_cq *cq = ibv_create_cq(context, 10, NULL, events, 0);
    struct ibv_qp *qp = make_qp(IBV_QPT_RC, cq, NULL);
    to_init(qp);
    post_recv(qp, 1, 0, 100);
    connect_qp(qp, exchanged(qp->qp_num));
    exchanged(0);
    pass_messages(qp, cq, events);
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
    CHECK(!events || ibv_destroy_comp_channel(events) == 0);
}

static void walk_librdmacm(struct rdma_cm_id *listener) {
    struct rdma_cm_id *id = listener ? requested(listener, "") : routed(own, PORT);
    struct ibv_pd *usual = pd;
    pd = id->pd;
    struct ibv_mr *region = mr, *second = mr = ibv_reg_mr(pd, buffer, SIZE, ALL_ACCESS);
    CHECK(second);
    struct ibv_cq *cq = ibv_create_cq(id->verbs, 10, NULL, NULL, 0);
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}};
    CHECK(rdma_create_qp(id, pd, &init) == 0);
    post_recv(id->qp, 1, 0, 100);
    CHECK((listener ? rdma_accept(id, NULL) : rdma_connect(id, NULL)) == 0);
    CHECK(ended(id, RDMA_CM_EVENT_ESTABLISHED) == 0);
    exchanged(0);
    pass_messages(id->qp, cq, NULL);
    // The end of the peer's process is looked for in the meantime.
    usleep(300000);
    has_no_event(channel);
    exchanged(0);
    rdma_disconnect(id);
    CHECK(ended(id, RDMA_CM_EVENT_DISCONNECTED) == 0);
    destroy(id);
    CHECK(ibv_destroy_cq(cq) == 0 && ibv_dereg_mr(second) == 0);
    mr = region, pd = usual;
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    own = argv[1];
    int ends[2], status;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    pid_t server = fork();
    CHECK(server >= 0);
    peer = ends[server == 0];
    close(ends[server != 0]);
    open_first();
    channel = rdma_create_event_channel();
    CHECK(channel);
    struct rdma_cm_id *listener = server ? NULL : listening(PORT, 1);
    exchanged(0);
    if (listener)
        drop(argv[2]);
    walk_queue_pairs(server == 0, argv[2]);
    walk_librdmacm(listener);
    if (listener) {
        destroy(listener);
        if (strcmp(argv[2], "root") != 0) {
            struct rdma_cm_id *late = new_id(RDMA_PS_TCP);
            struct sockaddr_storage at_own = at(own, PORT + 1);
            CHECK(rdma_bind_addr(late, (struct sockaddr *)&at_own) == 0);
            FAILED(rdma_listen(late, 1), EACCES);
            destroy(late);
        }
    }
    rdma_destroy_event_channel(channel);
    close_all();
    CHECK(!server || (waitpid(server, &status, 0) == server && status == 0));
    return 0;
}
