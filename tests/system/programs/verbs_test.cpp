// What the verbs programs share; see the header.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs_test.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/mman.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <stdexcept>

namespace urdma::system_test {

namespace {

using Clock = std::chrono::steady_clock;

std::uint32_t random_psn() { return std::random_device{}() & 0xFFFFFF; }

ibv_cq* make_cq(const Device& device, int depth, ibv_comp_channel* channel) {
  ibv_cq* cq = ibv_create_cq(device.context, depth, nullptr, channel, 0);
  if (cq == nullptr) fail(std::string("ibv_create_cq: ") + std::strerror(errno));
  return cq;
}

}  // namespace

void fail(const std::string& what) { throw std::runtime_error(what); }

void expect_zero(int result, const char* what) {
  if (result != 0)
    fail(std::string(what) + " returned " + std::to_string(result) + ": " + std::strerror(errno));
}

Device::Device(int gid_number) : gid_index(gid_number) {
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  if (devices == nullptr || count == 0) fail("there is no verbs device");
  context = ibv_open_device(devices[0]);
  ibv_free_device_list(devices);
  if (context == nullptr) fail(std::string("ibv_open_device: ") + std::strerror(errno));
  pd = ibv_alloc_pd(context);
  if (pd == nullptr) fail(std::string("ibv_alloc_pd: ") + std::strerror(errno));
  expect_zero(ibv_query_gid(context, 1, gid_index, &gid), "ibv_query_gid");
  expect_zero(ibv_query_port(context, 1, &port), "ibv_query_port");
  expect_zero(ibv_query_device(context, &limits), "ibv_query_device");
}

Device::~Device() {
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
}

std::uint8_t pattern_byte(std::uint32_t seed, std::size_t offset) {
  const std::uint64_t mixed = (offset + 1) * 0x9E3779B97F4A7C15U + std::uint64_t{seed} * 0xBF58476D1CE4E5B9U;
  return static_cast<std::uint8_t>(mixed >> 56);
}

void fill(std::span<std::uint8_t> bytes, std::uint32_t seed) {
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = pattern_byte(seed, i);
}

std::ptrdiff_t first_difference(std::span<const std::uint8_t> bytes, std::uint32_t seed, std::size_t first) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != pattern_byte(seed, first + i)) return static_cast<std::ptrdiff_t>(i);
  }
  return -1;
}

Memory::Memory(std::size_t size) : size_(size) {
  void* address =
      mmap(nullptr, size == 0 ? 1 : size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) fail(std::string("mmap: ") + std::strerror(errno));
  data_ = static_cast<std::uint8_t*>(address);
}

Memory::~Memory() { release(); }

void Memory::release() {
  if (data_ != nullptr) munmap(data_, size_ == 0 ? 1 : size_);
  data_ = nullptr;
}

Registration::Registration(ibv_pd* pd, void* address, std::size_t size, int access)
    : mr_(ibv_reg_mr(pd, address, size, access)) {
  if (mr_ == nullptr) fail(std::string("ibv_reg_mr: ") + std::strerror(errno));
}

Registration::~Registration() {
  if (mr_ != nullptr) ibv_dereg_mr(mr_);
}

void Registration::deregister() {
  expect_zero(ibv_dereg_mr(mr_), "ibv_dereg_mr");
  mr_ = nullptr;
}

End::End(Device& device, const QpOptions& options) : device_(device), options_(options), psn_(random_psn()) {
  if (options.events) {
    channel = ibv_create_comp_channel(device.context);
    if (channel == nullptr) fail(std::string("ibv_create_comp_channel: ") + std::strerror(errno));
  }
  send_cq = options.cq != nullptr ? options.cq : make_cq(device, options.cq_depth, channel);
  receive_cq = options.cq != nullptr ? options.cq : make_cq(device, options.cq_depth, channel);
  ibv_qp_init_attr attributes{};
  attributes.send_cq = send_cq;
  attributes.recv_cq = receive_cq;
  attributes.srq = options.srq;
  attributes.qp_type = options.type;
  attributes.sq_sig_all = options.signal_all ? 1 : 0;
  attributes.cap.max_send_wr = static_cast<std::uint32_t>(options.send_depth);
  attributes.cap.max_recv_wr = static_cast<std::uint32_t>(options.receive_depth);
  attributes.cap.max_send_sge = static_cast<std::uint32_t>(options.sges);
  attributes.cap.max_recv_sge = static_cast<std::uint32_t>(options.sges);
  attributes.cap.max_inline_data = static_cast<std::uint32_t>(options.inline_bytes);
  qp = ibv_create_qp(device.pd, &attributes);
  if (qp == nullptr) fail(std::string("ibv_create_qp: ") + std::strerror(errno));
}

End::~End() {
  ibv_destroy_qp(qp);
  if (options_.cq == nullptr) {
    ibv_destroy_cq(send_cq);
    ibv_destroy_cq(receive_cq);
  }
  if (channel != nullptr) ibv_destroy_comp_channel(channel);
}

QpAddress End::address() const { return {qp->qp_num, psn_, device_.gid}; }

void End::to_init() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  attributes.qp_access_flags = static_cast<unsigned>(options_.access);
  expect_zero(
      ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
      "to INIT");
}

void End::to_rtr(const QpAddress& peer) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = options_.mtu;
  attributes.dest_qp_num = peer.qpn;
  attributes.rq_psn = peer.psn;
  attributes.max_dest_rd_atomic = options_.rd_atomic;
  attributes.min_rnr_timer = options_.min_rnr_timer;
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.grh.dgid = peer.gid;
  attributes.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(device_.gid_index);
  attributes.ah_attr.grh.hop_limit = 64;
  const int answering = options_.type == IBV_QPT_RC ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0;
  expect_zero(
      ibv_modify_qp(qp, &attributes,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | answering),
      "to RTR");
}

void End::to_rts() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = options_.timeout;
  attributes.retry_cnt = options_.retry_count;
  attributes.rnr_retry = options_.rnr_retry;
  attributes.sq_psn = psn_;
  attributes.max_rd_atomic = options_.rd_atomic;
  const int retries = options_.type == IBV_QPT_RC
                          ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
                          : 0;
  expect_zero(ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN | retries), "to RTS");
}

void End::connect(const QpAddress& peer) {
  to_init();
  to_rtr(peer);
  to_rts();
}

void End::to_error() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  expect_zero(ibv_modify_qp(qp, &attributes, IBV_QP_STATE), "to ERR");
}

ibv_qp_state End::state() const {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  expect_zero(ibv_query_qp(qp, &attributes, IBV_QP_STATE, &initial), "ibv_query_qp");
  return attributes.qp_state;
}

void End::post_send(ibv_send_wr& request) const {
  ibv_send_wr* bad = nullptr;
  expect_zero(ibv_post_send(qp, &request, &bad), "ibv_post_send");
}

void End::post_receive(std::uint64_t wr_id, std::span<ibv_sge> pieces) const {
  ibv_recv_wr request{};
  request.wr_id = wr_id;
  request.sg_list = pieces.data();
  request.num_sge = static_cast<int>(pieces.size());
  ibv_recv_wr* bad = nullptr;
  expect_zero(ibv_post_recv(qp, &request, &bad), "ibv_post_recv");
}

Link::Link(Device& device, const QpOptions& options) : a(device, options), b(device, options) {
  a.connect(b.address());
  b.connect(a.address());
}

ibv_wc wait_for(ibv_cq* cq, int limit_ms) {
  const auto limit = Clock::now() + std::chrono::milliseconds(limit_ms);
  ibv_wc completion{};
  while (true) {
    const int count = ibv_poll_cq(cq, 1, &completion);
    if (count < 0) fail("ibv_poll_cq fails");
    if (count == 1) return completion;
    if (Clock::now() > limit) fail("no completion within " + std::to_string(limit_ms) + " ms");
    sched_yield();
  }
}

ibv_wc wait_for_success(ibv_cq* cq, int limit_ms) {
  const ibv_wc completion = wait_for(cq, limit_ms);
  if (completion.status != IBV_WC_SUCCESS) {
    fail(std::string("request ") + std::to_string(completion.wr_id) + " completed with " +
         ibv_wc_status_str(completion.status));
  }
  return completion;
}

bool stays_empty(ibv_cq* cq, int milliseconds) {
  const auto limit = Clock::now() + std::chrono::milliseconds(milliseconds);
  ibv_wc completion{};
  while (Clock::now() < limit) {
    if (ibv_poll_cq(cq, 1, &completion) != 0) return false;
    sched_yield();
  }
  return true;
}

ibv_event_type wait_for_async_event(const Device& device) {
  pollfd waiting{device.context->async_fd, POLLIN, 0};
  if (poll(&waiting, 1, kWaitLimitMs) != 1) fail("no asynchronous event");
  ibv_async_event event{};
  expect_zero(ibv_get_async_event(device.context, &event), "ibv_get_async_event");
  ibv_ack_async_event(&event);
  return event.event_type;
}

ibv_send_wr send_request(ibv_wr_opcode opcode, std::uint64_t wr_id, std::span<ibv_sge> pieces,
                         unsigned flags) {
  ibv_send_wr request{};
  request.wr_id = wr_id;
  request.opcode = opcode;
  request.sg_list = pieces.data();
  request.num_sge = static_cast<int>(pieces.size());
  request.send_flags = flags;
  return request;
}

ibv_send_wr rdma_request(ibv_wr_opcode opcode, std::uint64_t wr_id, std::span<ibv_sge> pieces,
                         std::uint64_t remote, std::uint32_t rkey, unsigned flags) {
  ibv_send_wr request = send_request(opcode, wr_id, pieces, flags);
  request.wr.rdma.remote_addr = remote;
  request.wr.rdma.rkey = rkey;
  return request;
}

}  // namespace urdma::system_test
