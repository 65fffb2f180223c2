/* The beginnings of libibverbs' structures, as far as they are looked at: programs are linked to their layout, so it
 * does not change. */
#ifndef OFFBEAT_VERBS_H
#define OFFBEAT_VERBS_H

#include <stdint.h>

struct ibv_device {
    void *ops[2];
    int node_type, transport_type;
    char name[64];
};

struct ibv_context {
    struct ibv_device *device;
};

struct ibv_qp {
    struct ibv_context *context;
    void *qp_context, *pd, *send_cq, *recv_cq, *srq;
    uint32_t handle, qp_num;
};

struct ibv_global_route {
    _Alignas(8) uint8_t dgid[16];
    uint32_t flow_label;
    uint8_t sgid_index, hop_limit, traffic_class;
};

struct ibv_ah_attr {
    struct ibv_global_route grh;
    uint16_t dlid;
    uint8_t sl, src_path_bits, static_rate, is_global, port_num;
};

struct ibv_qp_attr {
    int qp_state, cur_qp_state, path_mtu, path_mig_state;
    uint32_t qkey, rq_psn, sq_psn, dest_qp_num;
    unsigned qp_access_flags;
    uint32_t cap[5];
    struct ibv_ah_attr ah_attr;
};

enum { IBV_QPS_RESET = 0, IBV_QPS_RTR = 2, IBV_QPS_ERR = 6 };
enum { IBV_QP_STATE = 1 << 0, IBV_QP_AV = 1 << 7, IBV_QP_DEST_QPN = 1 << 20 };

#endif
