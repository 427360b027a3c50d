// A whole engine in this process (URDMA_TEST_ENGINES threads, or one), on the loopback port: clients whose
// memory is this process's own, and their side of rings, doorbells and completions. The test's thread is the
// control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "datapath/engine/engine.hpp"
#include "tests/unit/engine/environment.hpp"
#include "tests/unit/engine/fixture.hpp"

namespace urdma::engine {

using Clock = std::chrono::steady_clock;
// How many threads the engine of a test has, if it does not say so itself.
inline std::uint32_t engines_by_default() {
  const char* text = std::getenv("URDMA_TEST_ENGINES");
  return text != nullptr ? static_cast<std::uint32_t>(std::atoi(text)) : 1;
}

inline constexpr auto kPatience = std::chrono::seconds(20);
inline constexpr std::uint32_t kAllAccess =
    kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic;

// Memory of the program, and the daemon's view of it; `here` is used where the test maps it.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes) : bytes_((bytes + 4095) / 4096 * 4096) {
    file_ = ::memfd_create("buffer", MFD_CLOEXEC);
    EXPECT_EQ(::ftruncate(file_, static_cast<off_t>(bytes_)), 0);
    program_ = map(nullptr);
    here_ = map(nullptr);
  }
  ~Buffer() {
    ::munmap(program_, bytes_);
    ::munmap(here_, bytes_);
    ::close(file_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  [[nodiscard]] std::byte* data() const { return program_; }
  [[nodiscard]] std::byte* here() const { return here_; }
  [[nodiscard]] std::size_t size() const { return bytes_; }
  [[nodiscard]] std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(program_); }
  // Forbids all access to the program's pages, so that a copier that writes there waits, for half a second at
  // most.
  void hide() {
    EXPECT_NE(::mmap(program_, bytes_, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0), MAP_FAILED);
  }
  void show() { EXPECT_EQ(map(program_), program_); }

 private:
  std::byte* map(std::byte* at) const {
    void* mapped =
        ::mmap(at, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | (at != nullptr ? MAP_FIXED : 0), file_, 0);
    EXPECT_NE(mapped, MAP_FAILED);
    return static_cast<std::byte*>(mapped);
  }
  std::size_t bytes_;
  int file_ = -1;
  std::byte* program_ = nullptr;
  std::byte* here_ = nullptr;
};

// A completion, copied out of the ring.
struct Done {
  std::uint64_t wr_id = 0;
  WcStatus status = WcStatus::kSuccess;
  std::uint32_t byte_len = 0;
  bool is_receive = false;
};

struct Client;

// A QP with a completion queue of its own, as client and control thread see it.
struct Endpoint {
  Client* client = nullptr;
  std::unique_ptr<CompletionQueue> cq;
  std::unique_ptr<Qp> qp;
  std::unique_ptr<ClientRings> rings;
  std::uint32_t polled = 0;

  bool poll(Done& done) {
    auto* page = reinterpret_cast<abi::CqPage*>(cq->memory().data());
    const auto& cqe =
        reinterpret_cast<const abi::Cqe*>(cq->memory().data() + abi::kCqRingOffset)[polled % 1024];
    if (cqe.sequence.load(std::memory_order_acquire) != polled + 1) return false;
    done = {cqe.wr_id, static_cast<WcStatus>(cqe.status), cqe.byte_len, cqe.is_receive != 0};
    page->consumer.store(++polled, std::memory_order_release);
    return true;
  }
  // The next completion; a failure of the test if there is none in time.
  Done wait(Clock::duration limit = kPatience) {
    Done done{~0ULL, WcStatus::kGeneralErr, 0, false};
    const auto deadline = Clock::now() + limit;
    while (!poll(done)) {
      if (Clock::now() > deadline) {
        ADD_FAILURE() << "no completion in time";
        break;
      }
      std::this_thread::yield();
    }
    return done;
  }
};

struct Client {
  std::unique_ptr<memory::AddressSpace> space;
  std::unique_ptr<Session> session;
  PdId pd;
  std::array<int, abi::kMaxEngines> eventfds{};
  int async[2] = {-1, -1};
  std::vector<std::unique_ptr<memory::Region>> regions;
  std::vector<std::uint32_t> extents;
  std::uint32_t doorbells = 0;
};

class EngineTest : public ::testing::Test {
 protected:
  explicit EngineTest(IdlePolicy idle = IdlePolicy::kAdaptive, std::uint32_t engines = engines_by_default())
      : page_memory_(shared_memory(sizeof(abi::EnginePage))), reports_(::eventfd(0, EFD_CLOEXEC)) {
    EngineConfig config;
    config.count = engines;
    config.idle = idle;
    config.convert = false;
    config.page = page();
    config.frames = EalEnvironment::frames().get();
    config.ports = {&EalEnvironment::port()};
    config.control_eventfd = reports_;
    auto made = Engine::create(std::move(config));
    EXPECT_TRUE(made);
    engine_ = std::move(*made);
    EXPECT_TRUE(engine_->start());
    engine_->run([&] { engine_->set_port_gids(0, std::span(&gid_, 1)); });
    frames_before_ = EalEnvironment::frames().free_frames();
  }
  ~EngineTest() override {
    while (!endpoints_.empty()) destroy(*endpoints_.back());
    for (const auto& client : clients_) end(*client);
    engine_->stop();
    EXPECT_GE(EalEnvironment::frames().free_frames() + 64, frames_before_) << "frames were lost";
    clients_.clear();  // their copiers wake the engine
    engine_.reset();
    ::close(reports_);
  }

  [[nodiscard]] abi::EnginePage* page() { return reinterpret_cast<abi::EnginePage*>(page_memory_.data()); }

  Client& add_client() {
    auto client = std::make_unique<Client>();
    auto space = memory::AddressSpace::create(::open("/proc/self/mem", O_RDWR | O_CLOEXEC),
                                              engine_->wake_descriptors());
    EXPECT_TRUE(space);
    client->space = std::move(*space);
    client->pd = PdId{static_cast<std::uint32_t>(clients_.size()) + 1};
    for (int& eventfd : client->eventfds) eventfd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    EXPECT_EQ(::pipe2(client->async, O_CLOEXEC | O_NONBLOCK), 0);
    Session::Config config;
    config.id = client->pd.value;
    config.page = shared_memory(sizeof(abi::SessionPage));
    config.async = std::move(*EventChannel::open(client->async[1]));
    config.space = client->space.get();
    config.doorbell_eventfds = client->eventfds;
    client->session = std::make_unique<Session>(std::move(config));
    engine_->run([&] { engine_->add_session(*client->session); });
    clients_.push_back(std::move(client));
    return *clients_.back();
  }

  // Memory that stays until nothing can use it any more.
  Buffer& add_buffer(std::size_t bytes) {
    buffers_.push_back(std::make_unique<Buffer>(bytes));
    return *buffers_.back();
  }
  // Registers a buffer; the key.
  std::uint32_t add_region(Client& client, const Buffer& buffer, bool is_mapped,
                           std::uint32_t access = kAllAccess) {
    auto region = std::make_unique<memory::Region>();
    region->key = MemoryKey{last_key_ += 1U << 8};
    region->pd = client.pd;
    region->access = access;
    region->iova = region->address = buffer.address();
    region->length = buffer.size();
    region->space = client.space.get();
    region->session = client.session->id();
    region->handle = last_key_;
    engine_->run([&] {
      EXPECT_TRUE(engine_->add_region(*region));
      if (!is_mapped) return;
      EXPECT_TRUE(client.space->add_extent(
          {.id = last_key_, .address = buffer.address(), .length = buffer.size(), .data = buffer.here()}));
      client.extents.push_back(last_key_);
    });
    client.regions.push_back(std::move(region));
    return last_key_;
  }

  Endpoint& add_endpoint(Client& client, std::uint32_t cq_depth = 1024, QpType type = QpType::kRc) {
    auto endpoint = std::make_unique<Endpoint>();
    endpoint->client = &client;
    CompletionQueue::Config cq;
    cq.session = client.session.get();
    cq.handle = last_qpn_ + 1;
    cq.depth = cq_depth;
    endpoint->cq = std::make_unique<CompletionQueue>(std::move(cq),
                                                     shared_memory(CompletionQueue::memory_bytes(cq_depth)));
    Qp::Config config = qp_config(++last_qpn_, {64, 64, 4, 4, 128});
    config.session = client.session.get();
    config.send_cq = config.recv_cq = endpoint->cq.get();
    config.pd = client.pd;
    config.transport.type = type;
    config.most_datagram_bytes = 1024;
    config.doorbell = client.doorbells++;
    config.user_pointer = last_qpn_;
    endpoint->qp = make_qp(config);
    endpoint->rings = std::make_unique<ClientRings>(*endpoint->qp);
    engine_->run([&] {
      engine_->add_cq(*endpoint->cq);
      engine_->add_qp(*endpoint->qp);
    });
    endpoints_.push_back(std::move(endpoint));
    return *endpoints_.back();
  }

  [[nodiscard]] Path path(bool is_local) const {
    Path path;
    path.is_set = true;
    path.is_local = is_local;
    path.source_gid = path.dest_gid = gid_;
    const wire::MacAddress mac = EalEnvironment::port().mac();
    path.flow = wire::make_flow({mac, mac, gid_, gid_, 0xC123, 0, 64, 0});
    return path;
  }
  int modify(Endpoint& endpoint, QpState state, std::uint32_t mask, transport::QpAttributes attributes = {},
             const Path& path = {}) {
    attributes.state = state;
    int error = 0;
    engine_->run([&] { error = engine_->modify_qp(*endpoint.qp, mask | kAttrState, attributes, path); });
    return error;
  }
  // To RTS, towards `peer`.
  void connect_one(Endpoint& endpoint, const Endpoint& peer, bool is_local, std::uint8_t rnr_retry = 7) {
    transport::QpAttributes attributes;
    attributes.access_flags = kAllAccess;
    attributes.path_mtu_code = 3;
    attributes.packet_bytes = is_local ? kLocalPacketBytes : 1024;
    attributes.dest_qpn = peer.qp->qpn();
    attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 8;
    attributes.min_rnr_timer = 1;
    attributes.timeout = 16;  // 0.27 s, retried: longer than a copier's patience
    attributes.retry_count = 7;
    attributes.rnr_retry = rnr_retry;
    EXPECT_EQ(modify(endpoint, QpState::kInit, kAttrPkeyIndex | kAttrPort | kAttrAccessFlags, attributes), 0);
    EXPECT_EQ(
        modify(endpoint, QpState::kRtr,
               kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn | kAttrMaxDestRdAtomic | kAttrMinRnrTimer,
               attributes, path(is_local)),
        0);
    EXPECT_EQ(
        modify(endpoint, QpState::kRts,
               kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry | kAttrSqPsn | kAttrMaxQpRdAtomic, attributes),
        0);
  }
  void connect(Endpoint& a, Endpoint& b, bool is_local, std::uint8_t rnr_retry = 7) {
    connect_one(a, b, is_local, rnr_retry);
    connect_one(b, a, is_local, rnr_retry);
  }

  void ring(const Endpoint& endpoint) {
    ring(endpoint, endpoint.rings->page().engine.load(std::memory_order_acquire));
  }
  void ring(const Endpoint& endpoint, std::uint32_t engine) {
    abi::ring(endpoint.client->session->board(engine), endpoint.qp->config().doorbell);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (page()->engines[engine].sleeping.load(std::memory_order_relaxed) == 0) return;
    const std::uint64_t one = 1;
    EXPECT_EQ(::write(endpoint.client->eventfds[engine], &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }
  void post(Endpoint& from, WrOpcode opcode, std::uint64_t wr_id, const std::vector<abi::Sge>& elements,
            std::uint64_t remote = 0, std::uint32_t rkey = 0, std::uint64_t compare_add = 0,
            std::uint64_t swap = 0) {
    abi::SendWqe wqe{};
    wqe.opcode = static_cast<std::uint8_t>(opcode);
    wqe.flags = kSendSignaled;
    wqe.wr_id = wr_id;
    wqe.remote_address = remote;
    wqe.rkey = rkey;
    wqe.compare_add = compare_add;
    wqe.swap = swap;
    from.rings->send(wqe, elements);
    ring(from);
  }

  // Removes a QP and its CQ, as the control thread does: freed when nothing names them.
  void destroy(Endpoint& endpoint) {
    bool is_quiet = false;
    const std::uint64_t cookie = ++last_cookie_;
    engine_->run([&] {
      engine_->remove_qp(*endpoint.qp);
      is_quiet = engine_->quiesce(*endpoint.qp, cookie);
    });
    EXPECT_TRUE(is_quiet || wait_for_report(cookie));
    engine_->run([&] { engine_->remove_cq(*endpoint.cq); });
    std::erase_if(endpoints_, [&](const auto& other) { return other.get() == &endpoint; });
  }
  // True once nothing uses the session's memory any more.
  bool quiesce(Client& client) {
    bool is_quiet = false;
    const std::uint64_t cookie = ++last_cookie_;
    engine_->run([&] { is_quiet = engine_->quiesce(*client.session, cookie); });
    return is_quiet || wait_for_report(cookie);
  }
  void end(Client& client) {
    engine_->run([&] {
      for (const auto& region : client.regions) engine_->remove_region(*region);
      for (const std::uint32_t extent : client.extents) client.space->remove_extent(extent);
    });
    EXPECT_TRUE(quiesce(client));
    engine_->run([&] { engine_->remove_session(*client.session); });
    for (std::uint32_t i = 0; i < engine_->count(); ++i) {
      EXPECT_EQ(client.session->held(i).transfers, 0U);
      EXPECT_EQ(client.session->held(i).buffers, 0U);
    }
    for (const int eventfd : client.eventfds) ::close(eventfd);
    ::close(client.async[0]);
    ::close(client.async[1]);
  }
  // Does what the control thread does about an overrun; keeps all.
  void take_reports() {
    for (const Report& report : engine_->take_reports()) {
      seen_.push_back(report);
      for (const auto& endpoint : endpoints_) {
        const bool is_its_cq =
            report.kind == Report::Kind::kCqOverrun && endpoint->cq->handle() == report.handle;
        if (is_its_cq) engine_->run([&] { engine_->fail_users(*endpoint->cq); });
      }
    }
  }
  bool wait_for_report(std::uint64_t cookie) {
    const auto deadline = Clock::now() + kPatience;
    while (Clock::now() < deadline) {
      take_reports();
      for (const Report& report : seen_)
        if (report.kind == Report::Kind::kQuiesced && report.cookie == cookie) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  bool wait_for_broken_session(const Client& client) {
    const auto deadline = Clock::now() + kPatience;
    while (Clock::now() < deadline) {
      take_reports();
      for (const Report& report : seen_)
        if (report.kind == Report::Kind::kSessionBroken && report.session == client.session->id())
          return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  wire::Gid gid_ = wire::gid_from_ipv4(0x7F000001);
  memory::SharedMemory page_memory_;
  int reports_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<Report> seen_;
  std::uint32_t last_key_ = 100;
  std::uint32_t last_qpn_ = 1000;
  std::uint64_t last_cookie_ = 0;
  std::uint32_t frames_before_ = 0;
};

}  // namespace urdma::engine
