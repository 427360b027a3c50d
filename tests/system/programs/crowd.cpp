// One of several programs that fill a node with queue pairs. Usage: crowd [--qps N] [-p PORT] [HOST]. Each of
// its queue pairs is connected to one of its partner's; over each a message goes in either direction, and is
// compared. Then it prints `ready`, keeps all that it has until SIGTERM, takes it apart, and ends with 0.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <signal.h>

#include <cstdio>
#include <exception>
#include <vector>

#include "line.hpp"
#include "line_options.hpp"
#include "verbs_test.hpp"

using namespace urdma::system_test;

namespace {

constexpr std::size_t kBytes = 32;  // of a message
constexpr std::uint32_t kFromServer = 1'000'000;

class Crowd {
 public:
  Crowd(Device& device, std::uint32_t count)
      : device_(device),
        source_(device, count * kBytes),
        target_(device, count * kBytes),
        cq_(ibv_create_cq(device.context, static_cast<int>(2 * count), nullptr, nullptr, 0)) {
    if (cq_ == nullptr) fail("ibv_create_cq");
    for (std::uint32_t i = 0; i < count; ++i) add_qp();
  }
  ~Crowd() {
    for (ibv_qp* qp : qps_) ibv_destroy_qp(qp);
    ibv_destroy_cq(cq_);
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  void connect(const Line& line) {
    for (std::size_t i = 0; i < qps_.size(); ++i) {
      const QpAddress peer = line.exchange(QpAddress{qps_[i]->qp_num, 0, device_.gid});
      connect(qps_[i], peer);
      post_receive(i);
    }
  }
  // Both directions at once, on every queue pair. `mine` and `theirs` are where the patterns begin.
  void exchange_messages(std::uint32_t mine, std::uint32_t theirs) {
    for (std::size_t i = 0; i < qps_.size(); ++i) {
      const std::size_t at = i * kBytes;
      fill(source_.memory.bytes(at, kBytes), mine + static_cast<std::uint32_t>(i));
      ibv_sge piece = source_.sge(at, kBytes);
      auto request = send_request(IBV_WR_SEND, i, {&piece, 1});
      ibv_send_wr* bad = nullptr;
      expect_zero(ibv_post_send(qps_[i], &request, &bad), "ibv_post_send");
    }
    for (std::size_t i = 0; i < 2 * qps_.size(); ++i) wait_for_success(cq_);
    for (std::size_t i = 0; i < qps_.size(); ++i) {
      const std::uint32_t seed = theirs + static_cast<std::uint32_t>(i);
      if (first_difference(target_.memory.bytes(i * kBytes, kBytes), seed) != -1) fail("a wrong message");
    }
  }

 private:
  void add_qp() {
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = cq_;
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap = {1, 1, 1, 1, 0};
    ibv_qp* qp = ibv_create_qp(device_.pd, &wanted);
    if (qp == nullptr) fail("ibv_create_qp, number " + std::to_string(qps_.size()));
    qps_.push_back(qp);
  }
  void connect(ibv_qp* qp, const QpAddress& peer) const {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = 1;
    expect_zero(
        ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
        "to INIT");
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = IBV_MTU_1024;
    attributes.dest_qp_num = peer.qpn;
    attributes.min_rnr_timer = 12;
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.port_num = 1;
    attributes.ah_attr.grh.dgid = peer.gid;
    attributes.ah_attr.grh.hop_limit = 1;
    attributes.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(device_.gid_index);
    expect_zero(ibv_modify_qp(qp, &attributes,
                              IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
                "to RTR");
    attributes.qp_state = IBV_QPS_RTS;
    attributes.timeout = 14;
    attributes.retry_cnt = 7;
    attributes.rnr_retry = 7;
    expect_zero(ibv_modify_qp(qp, &attributes,
                              IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
                "to RTS");
  }
  void post_receive(std::size_t number) const {
    ibv_sge piece = target_.sge(number * kBytes, kBytes);
    ibv_recv_wr request{};
    request.wr_id = number;
    request.sg_list = &piece;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    expect_zero(ibv_post_recv(qps_[number], &request, &bad), "ibv_post_recv");
  }

  Device& device_;
  Region source_;
  Region target_;
  ibv_cq* cq_;
  std::vector<ibv_qp*> qps_;
};

void run(const LineOptions& options, std::uint32_t count) {
  sigset_t termination;
  sigemptyset(&termination);
  sigaddset(&termination, SIGTERM);
  sigprocmask(SIG_BLOCK, &termination, nullptr);  // before the device's thread is there
  const Line line(options.host, options.port);
  Device device;
  Crowd crowd(device, count);
  crowd.connect(line);
  line.meet();
  const bool is_server = options.host.empty();
  crowd.exchange_messages(is_server ? kFromServer : 0, is_server ? 0 : kFromServer);
  line.meet();
  std::puts("ready");
  std::fflush(stdout);
  int number = 0;
  sigwait(&termination, &number);
}

}  // namespace

int main(int argc, char** argv) {
  LineOptions options;
  std::uint32_t count = 100;
  CLI::App app("Many queue pairs, kept until SIGTERM");
  options.add_to(app);
  app.add_option("--qps", count);
  CLI11_PARSE(app, argc, argv);
  try {
    run(options, count);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "crowd: %s\n", error.what());
    return 1;
  }
  return 0;
}
