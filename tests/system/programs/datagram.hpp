// A queue pair of datagrams, for the verbs programs of the system tests. Failures throw, as in
// verbs_test.hpp.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <arpa/inet.h>

#include <cerrno>
#include <cstring>

#include "verbs_test.hpp"

namespace urdma::system_test {

inline constexpr std::size_t kGrhBytes = 40;
inline constexpr std::uint32_t kQkey = 0x11223344;
inline constexpr std::uint32_t kMulticastQpn = 0xFFFFFF;

class DatagramEnd {
 public:
  explicit DatagramEnd(Device& device, std::uint32_t qkey = kQkey, std::uint32_t depth = 64)
      : cq_send_(make_cq(device)), cq_receive_(make_cq(device)) {
    ibv_qp_init_attr initial{};
    initial.send_cq = cq_send_;
    initial.recv_cq = cq_receive_;
    initial.qp_type = IBV_QPT_UD;
    initial.cap = {depth, depth, 4, 4, 64};
    qp = ibv_create_qp(device.pd, &initial);
    if (qp == nullptr) fail(std::string("ibv_create_qp: ") + std::strerror(errno));
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = 1;
    attributes.qkey = qkey;
    expect_zero(ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
                "to INIT");
    attributes.qp_state = IBV_QPS_RTR;
    expect_zero(ibv_modify_qp(qp, &attributes, IBV_QP_STATE), "to RTR");
    to_rts();
  }
  ~DatagramEnd() {
    ibv_destroy_qp(qp);
    ibv_destroy_cq(cq_send_);
    ibv_destroy_cq(cq_receive_);
  }
  DatagramEnd(const DatagramEnd&) = delete;
  DatagramEnd& operator=(const DatagramEnd&) = delete;

  [[nodiscard]] ibv_cq* send_cq() const { return cq_send_; }
  [[nodiscard]] ibv_cq* receive_cq() const { return cq_receive_; }

  // From RTR, or from SQE.
  void to_rts() const {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTS;
    attributes.sq_psn = 7;
    const bool is_first = state() == IBV_QPS_RTR;
    expect_zero(ibv_modify_qp(qp, &attributes, IBV_QP_STATE | (is_first ? IBV_QP_SQ_PSN : 0)), "to RTS");
  }
  [[nodiscard]] ibv_qp_state state() const {
    ibv_qp_attr attributes{};
    ibv_qp_init_attr initial{};
    expect_zero(ibv_query_qp(qp, &attributes, IBV_QP_STATE, &initial), "ibv_query_qp");
    return attributes.qp_state;
  }
  void post_receive(std::uint64_t wr_id, ibv_sge piece) const {
    ibv_recv_wr request{};
    request.wr_id = wr_id;
    request.sg_list = &piece;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    expect_zero(ibv_post_recv(qp, &request, &bad), "ibv_post_recv");
  }
  // An immediate of 0: none.
  void send(ibv_ah* to, std::uint32_t qpn, ibv_sge piece, std::uint32_t qkey = kQkey,
            std::uint32_t immediate = 0) const {
    auto request = send_request(immediate != 0 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, 1, {&piece, 1});
    request.imm_data = htonl(immediate);
    request.wr.ud = {.ah = to, .remote_qpn = qpn, .remote_qkey = qkey};
    ibv_send_wr* bad = nullptr;
    expect_zero(ibv_post_send(qp, &request, &bad), "ibv_post_send");
  }

  ibv_qp* qp = nullptr;

 private:
  static ibv_cq* make_cq(Device& device) {
    ibv_cq* cq = ibv_create_cq(device.context, 256, nullptr, nullptr, 0);
    if (cq == nullptr) fail(std::string("ibv_create_cq: ") + std::strerror(errno));
    return cq;
  }

  ibv_cq* cq_send_;
  ibv_cq* cq_receive_;
};

class AddressHandle {
 public:
  AddressHandle(const Device& device, const ibv_gid& to) {
    ibv_ah_attr attributes{};
    attributes.is_global = 1;
    attributes.port_num = 1;
    attributes.grh.dgid = to;
    attributes.grh.sgid_index = static_cast<std::uint8_t>(device.gid_index);
    attributes.grh.hop_limit = 17;
    attributes.grh.traffic_class = 0x20;
    take(ibv_create_ah(device.pd, &attributes));
  }
  // To whom a datagram came from.
  AddressHandle(const Device& device, ibv_wc completion, void* grh) {
    take(ibv_create_ah_from_wc(device.pd, &completion, static_cast<ibv_grh*>(grh), 1));
  }
  ~AddressHandle() { destroy(); }
  AddressHandle(const AddressHandle&) = delete;
  AddressHandle& operator=(const AddressHandle&) = delete;

  [[nodiscard]] ibv_ah* get() const { return ah_; }
  void destroy() {
    if (ah_ != nullptr) expect_zero(ibv_destroy_ah(ah_), "ibv_destroy_ah");
    ah_ = nullptr;
  }

 private:
  void take(ibv_ah* ah) {
    if (ah == nullptr) fail(std::string("an address handle: ") + std::strerror(errno));
    ah_ = ah;
  }
  ibv_ah* ah_ = nullptr;
};

inline bool is_ipv4(const ibv_gid& gid) {
  constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
  return std::memcmp(gid.raw, kMapped, sizeof(kMapped)) == 0;
}
inline ibv_gid gid_of(const char* text) {
  ibv_gid gid{};
  if (inet_pton(AF_INET6, text, gid.raw) != 1) fail(std::string("not a GID: ") + text);
  return gid;
}

// Empty, or what is wrong with the GRH in front of a received datagram.
inline std::string grh_fault(const std::uint8_t* grh, const ibv_gid& from, const ibv_gid& to) {
  const bool is_v4 = is_ipv4(from) && is_ipv4(to);
  if (!is_v4) {
    if (grh[0] >> 4 != 6) return "no IPv6 header";
    if (std::memcmp(grh + 8, from.raw, 16) != 0) return "wrong source GID";
    return std::memcmp(grh + 24, to.raw, 16) == 0 ? "" : "wrong destination GID";
  }
  for (int i = 0; i < 20; ++i) {
    if (grh[i] != 0) return "the first 20 bytes are not zero";
  }
  if (grh[20] != 0x45) return "no IPv4 header";
  if (std::memcmp(grh + 32, from.raw + 12, 4) != 0) return "wrong source address";
  return std::memcmp(grh + 36, to.raw + 12, 4) == 0 ? "" : "wrong destination address";
}

}  // namespace urdma::system_test
