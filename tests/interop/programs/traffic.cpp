// Traffic of every kind, both ways at once and at full depth, with every byte and every sum verified: what
// has to get across a bad link. Usage: traffic -p PORT [--gid N] [--count N] [--depth N] [--bytes N] [--mtu
// N]
// [--timeout CODE] [HOST]. Without HOST it is the server; both ends need the same numbers. Each end draws its
// requests from a generator that the other end knows the seed of, and so knows what must have come.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <arpa/inet.h>
#include <sched.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <random>
#include <vector>

#include "party.hpp"

using namespace urdma::system_test;
using urdma::interop::Party;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kWordsBytes = 4096;  // at the region's begin: the sum, the swapped word
constexpr std::uint32_t kReadSeed = 77;
constexpr std::chrono::seconds kStallLimit{40};

struct Options {
  LineOptions party;
  std::uint32_t count = 1000;
  std::uint32_t depth = 64;
  std::uint32_t bytes = 16384;  // the largest request
  std::uint32_t mtu = 1024;
  std::uint8_t timeout = 14;
};

enum class Kind : std::uint8_t { kSend, kSendImm, kWrite, kWriteImm, kRead, kAdd, kSwap };
constexpr unsigned kKinds = 7;

struct Request {
  Kind kind;
  std::uint32_t size;

  [[nodiscard]] bool takes_receive() const {
    return kind == Kind::kSend || kind == Kind::kSendImm || kind == Kind::kWriteImm;
  }
  [[nodiscard]] bool writes() const { return kind == Kind::kWrite || kind == Kind::kWriteImm; }
};

std::vector<Request> requests_of(bool client, const Options& options) {
  std::mt19937 random(client ? 1 : 2);
  std::vector<Request> requests(options.count);
  for (Request& request : requests) {
    request.kind = static_cast<Kind>(random() % kKinds);
    // Half of them small: packets of one message, and messages of one packet.
    request.size = static_cast<std::uint32_t>(random() % ((random() % 2 == 0 ? 64U : options.bytes) + 1U));
  }
  return requests;
}

// What a region holds, in this order: words; then, of `depth` slots each: what is sent from, what comes by
// SEND, what comes by WRITE, what is read into; then what the other end reads from.
struct Layout {
  explicit Layout(const Options& options) : slot(options.bytes), depth(options.depth) {}
  [[nodiscard]] std::size_t at(unsigned area, std::size_t index) const {
    return kWordsBytes + (area * depth + index % depth) * slot;
  }
  [[nodiscard]] std::size_t source(std::size_t index) const { return at(0, index); }
  [[nodiscard]] std::size_t received(std::size_t index) const { return at(1, index); }
  [[nodiscard]] std::size_t written(std::size_t index) const { return at(2, index); }
  [[nodiscard]] std::size_t sink(std::size_t index) const { return at(3, index); }
  [[nodiscard]] std::size_t readable() const { return at(4, 0); }
  [[nodiscard]] std::size_t total() const { return readable() + slot; }

  std::size_t slot;
  std::size_t depth;
};

class Traffic {
 public:
  explicit Traffic(const Options& options)
      : options_(options),
        layout_(options),
        party_(options.party, layout_.total(), qp_options(options)),
        mine_(requests_of(party_.is_client, options)),
        theirs_(requests_of(!party_.is_client, options)) {
    for (std::uint32_t i = 0; i < theirs_.size(); ++i) {
      if (theirs_[i].takes_receive()) expected_.push_back(i);
    }
    fill(party_.region.memory.bytes(layout_.readable(), layout_.slot), kReadSeed);
    for (std::size_t i = 0; i < options_.depth; ++i) post_receive(i);
  }

  void run() {
    party_.line.meet();
    const auto started = Clock::now();
    last_progress_ = started;
    while (done_ < mine_.size() || received_ < expected_.size()) {
      while (posted_ < mine_.size() && posted_ - done_ < options_.depth) post(posted_++);
      if (!poll_sends() && !poll_receives()) wait();
    }
    const std::chrono::duration<double> took = Clock::now() - started;
    party_.line.meet();
    verify_written();
    verify_words();
    std::printf("every byte is right: %zu requests, %.0f bytes, %.3f s, %.2f MB/s\n", mine_.size(), bytes_,
                took.count(), bytes_ / took.count() / 1e6);
  }

 private:
  static QpOptions qp_options(const Options& options) {
    QpOptions qp;
    qp.send_depth = qp.receive_depth = static_cast<int>(options.depth);
    qp.cq_depth = static_cast<int>(2 * options.depth);
    qp.sges = 1;
    qp.min_rnr_timer = 6;  // 0.08 ms
    qp.timeout = options.timeout;
    qp.mtu = IBV_MTU_256;
    for (std::uint32_t mtu = options.mtu; mtu > 256; mtu /= 2) qp.mtu = static_cast<ibv_mtu>(qp.mtu + 1);
    return qp;
  }

  void wait() {
    if (Clock::now() - last_progress_ > kStallLimit) {
      fail("no progress: " + std::to_string(done_) + " requests done, " + std::to_string(received_) + " of " +
           std::to_string(expected_.size()) + " received");
    }
    sched_yield();
  }

  void post_receive(std::size_t index) {
    party_.end.post_receive(index, party_.region.sge(layout_.received(index), layout_.slot));
  }

  void post(std::uint32_t index) {
    const Request& request = mine_[index];
    ibv_sge piece = party_.region.sge(layout_.source(index), request.size);
    ibv_send_wr work =
        rdma_request(IBV_WR_SEND, index, {&piece, 1}, party_.remote_address, party_.remote_key);
    work.imm_data = htonl(index);
    switch (request.kind) {
      case Kind::kSend:
        break;
      case Kind::kSendImm:
        work.opcode = IBV_WR_SEND_WITH_IMM;
        break;
      case Kind::kWrite:
        work.opcode = IBV_WR_RDMA_WRITE;
        break;
      case Kind::kWriteImm:
        work.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        break;
      case Kind::kRead:
        work.opcode = IBV_WR_RDMA_READ;
        work.wr.rdma.remote_addr += layout_.readable();
        piece = party_.region.sge(layout_.sink(index), request.size);
        break;
      case Kind::kAdd:
      case Kind::kSwap:
        prepare_atomic(request.kind, index, piece, work);
        break;
    }
    if (request.writes()) work.wr.rdma.remote_addr += layout_.written(index);
    if (request.takes_receive() || request.writes())
      fill(party_.region.memory.bytes(layout_.source(index), request.size), index);
    party_.end.post_send(work);
  }

  // The words are only touched by the other end's requests, one after another: each answer is known before.
  void prepare_atomic(Kind kind, std::uint32_t index, ibv_sge& piece, ibv_send_wr& work) {
    piece = party_.region.sge(layout_.sink(index) & ~std::size_t{7}, 8);
    work.wr.atomic.rkey = party_.remote_key;
    if (kind == Kind::kAdd) {
      work.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
      work.wr.atomic.remote_addr = party_.remote_address;
      work.wr.atomic.compare_add = index + 1;
      answers_[index] = sum_;
      sum_ += index + 1;
    } else {
      work.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
      work.wr.atomic.remote_addr = party_.remote_address + 8;
      work.wr.atomic.compare_add = swapped_;
      work.wr.atomic.swap = index + 1;
      answers_[index] = swapped_;
      swapped_ = index + 1;
    }
  }

  bool poll_sends() {
    ibv_wc completion{};
    if (ibv_poll_cq(party_.end.send_cq, 1, &completion) != 1) return false;
    const auto index = static_cast<std::uint32_t>(completion.wr_id);
    if (completion.status != IBV_WC_SUCCESS)
      fail("request " + std::to_string(index) + ": " + ibv_wc_status_str(completion.status));
    if (index != done_) fail("a completion out of order");
    const Request& request = mine_[index];
    if (request.kind == Kind::kRead) {
      expect_pattern(layout_.sink(index), request.size, kReadSeed, "READ", index);
    } else if (const auto known = answers_.find(index); known != answers_.end()) {
      std::uint64_t before = 0;
      std::memcpy(&before, party_.region.memory.data() + (layout_.sink(index) & ~std::size_t{7}),
                  sizeof(before));
      if (before != known->second)
        fail("atomic " + std::to_string(index) + " answers " + std::to_string(before));
      answers_.erase(known);
    }
    bytes_ += request.size;
    ++done_;
    last_progress_ = Clock::now();
    return true;
  }

  bool poll_receives() {
    ibv_wc completion{};
    if (ibv_poll_cq(party_.end.receive_cq, 1, &completion) != 1) return false;
    if (completion.status != IBV_WC_SUCCESS)
      fail(std::string("a receive: ") + ibv_wc_status_str(completion.status));
    if (received_ == expected_.size()) fail("a receive too many");
    const std::uint32_t index = expected_[received_];
    const Request& request = theirs_[index];
    if (completion.wr_id != received_) fail("a receive out of order");
    if (completion.byte_len != request.size) fail("a receive of a wrong length");
    if (request.kind != Kind::kSend && ntohl(completion.imm_data) != index) fail("wrong immediate data");
    if (!request.writes()) expect_pattern(layout_.received(received_), request.size, index, "SEND", index);
    post_receive(++received_ + options_.depth - 1);
    last_progress_ = Clock::now();
    return true;
  }

  // The last WRITE to each slot is what must be in it.
  void verify_written() const {
    std::map<std::size_t, std::uint32_t> last;
    for (std::uint32_t i = 0; i < theirs_.size(); ++i) {
      if (theirs_[i].writes()) last[layout_.written(i)] = i;
    }
    for (const auto& [offset, index] : last)
      expect_pattern(offset, theirs_[index].size, index, "WRITE", index);
  }

  void verify_words() const {
    std::uint64_t sum = 0;
    std::uint64_t swapped = 0;
    for (std::uint32_t i = 0; i < theirs_.size(); ++i) {
      if (theirs_[i].kind == Kind::kAdd) sum += i + 1;
      if (theirs_[i].kind == Kind::kSwap) swapped = i + 1;
    }
    const auto* words = reinterpret_cast<const std::uint64_t*>(party_.region.memory.data());
    if (words[0] != sum) fail("the sum is " + std::to_string(words[0]) + ", not " + std::to_string(sum));
    if (words[1] != swapped) fail("the swapped word is " + std::to_string(words[1]));
  }

  void expect_pattern(std::size_t offset, std::size_t size, std::uint32_t seed, const char* what,
                      std::uint32_t index) const {
    if (const auto at = first_difference(party_.region.memory.bytes(offset, size), seed); at != -1) {
      fail(std::string(what) + " " + std::to_string(index) + " of " + std::to_string(size) + " bytes: byte " +
           std::to_string(at) + " is wrong");
    }
  }

  Options options_;
  Layout layout_;
  Party party_;
  std::vector<Request> mine_;
  std::vector<Request> theirs_;
  std::vector<std::uint32_t> expected_;             // of theirs_, those that take a receive
  std::map<std::uint32_t, std::uint64_t> answers_;  // request -> what its atomic must answer
  std::uint32_t posted_ = 0;
  std::uint32_t done_ = 0;
  std::size_t received_ = 0;
  std::uint64_t sum_ = 0;
  std::uint64_t swapped_ = 0;
  double bytes_ = 0;
  Clock::time_point last_progress_;
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Verified traffic of every kind, both ways at once.");
  options.party.add_to(app);
  app.add_option("--count", options.count);
  app.add_option("--depth", options.depth);
  app.add_option("--bytes", options.bytes)->check(CLI::Range(1024, 1 << 20));
  app.add_option("--mtu", options.mtu)->check(CLI::IsMember({256, 512, 1024, 2048, 4096}));
  app.add_option("--timeout", options.timeout);
  CLI11_PARSE(app, argc, argv);
  try {
    Traffic(options).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "traffic: %s\n", error.what());
    return 1;
  }
  return 0;
}
