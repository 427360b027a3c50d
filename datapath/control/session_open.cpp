// Opening a session (see session_open.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/session_open.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cctype>

#include "datapath/control/device.hpp"
#include "datapath/control/shares.hpp"

namespace urdma::control {
namespace {

constexpr std::size_t kHelloFds = 2;  // the memory, the async pipe

Status check_hello(const Node& node, const Peer& peer, const abi::Hello& hello,
                   const std::vector<UniqueFd>& fds) {
  if (hello.version != abi::kVersion) {
    return fail(
        EPROTO,
        fmt::format("the program has urdma's interface of version {}, and the daemon that of version {}: "
                    "start both from one installation",
                    hello.version, abi::kVersion));
  }
  if (fds.size() != kHelloFds) return fail(EINVAL, "a Hello brings two descriptors");
  const std::uint64_t own = holdings_of(node.sessions, peer.uid).sessions;
  return check_share({"sessions", own, node.sessions.size(), node.limits.max_sessions}, 1, peer.uid,
                     node.owner, EMFILE);
}

// Letters for the log and `urdma status`, which go to a terminal.
std::string printable(const char* text, std::size_t size) {
  std::string result(text, ::strnlen(text, size));
  std::replace_if(
      result.begin(), result.end(), [](unsigned char c) { return std::isprint(c) == 0; }, '?');
  return result;
}

Status make_engine_session(const Node& node, ClientSession& session, int async_pipe) {
  engine::Session::Config config;
  config.id = session.id;
  auto page = memory::SharedMemory::create("urdma-session", sizeof(abi::SessionPage),
                                           memory::ClientAccess::kReadWrite);
  if (!page) return tl::make_unexpected(page.error());
  config.page = std::move(*page);
  auto async = engine::EventChannel::open(async_pipe);
  if (!async) return tl::make_unexpected(async.error());
  config.async = std::move(*async);
  config.space = session.process->space.get();
  config.async.carry_by(config.space->copier());
  config.doorbell_eventfds.fill(-1);
  for (std::uint32_t engine = 0; engine < node.engine.count(); ++engine) {
    session.doorbells[engine].reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!session.doorbells[engine].is_open()) return fail_errno(errno, "cannot make an eventfd");
    config.doorbell_eventfds[engine] = session.doorbells[engine].get();
  }
  session.engine_session = std::make_unique<engine::Session>(std::move(config));
  return {};
}

}  // namespace

Result<ClientSession*> open_session(Node& node, ConnectionId connection, const Peer& peer,
                                    const abi::Hello& hello, std::vector<UniqueFd> fds) {
  if (auto good = check_hello(node, peer, hello, fds); !good) return tl::make_unexpected(good.error());
  const Identity* identity = node.sessions.find_identity(hello.token);
  if (identity == nullptr) return fail(EACCES, "the token is not that of an open device");
  auto process = node.sessions.process_of(peer, std::move(fds[0]), node.engine.wake_descriptors());
  if (!process) return tl::make_unexpected(process.error());
  auto made = std::make_unique<ClientSession>();
  made->device = identity->device;
  made->identity = identity->connection;
  made->request = connection;
  made->peer = peer;
  made->program = printable(hello.program, sizeof(hello.program));
  made->process = std::move(*process);
  made->objects.pds.share_counter(identity->next_pd);
  made->objects.regions.share_counter(identity->next_region);
  made->objects.device_memories.share_counter(identity->next_dm);
  ClientSession& session = node.sessions.add(std::move(made));
  if (auto done = make_engine_session(node, session, fds[1].get()); !done) {
    node.sessions.erase(session.id);
    return tl::make_unexpected(done.error());
  }
  node.engine.run([&] { node.engine.add_session(*session.engine_session); });
  spdlog::info("session {} of {} (process {}, user {}) on {}", session.id, session.program, peer.pid,
               peer.uid, node.devices.at(session.device).name);
  return &session;
}

Reply describe_session(Node& node, ClientSession& session, int engine_page, bool is_polling) {
  abi::HelloReply hello{};
  hello.session_id = session.id;
  hello.engine_count = node.engine.count();
  hello.convert = node.converts ? 1 : 0;
  hello.idle_polling = is_polling ? 1 : 0;
  hello.device = node.devices.at(session.device).info(node.limits);
  const auto bytes = bytes_of(hello);
  Reply reply{{bytes.begin(), bytes.end()}, {}, &session.engine_session->page_memory()};
  reply.fds = {engine_page, session.engine_session->page_memory().descriptor()};
  for (std::uint32_t engine = 0; engine < node.engine.count(); ++engine)
    reply.fds.push_back(session.doorbells[engine].get());
  return reply;
}

}  // namespace urdma::control
