// The node's sockets and connections (see server.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/server.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "datapath/control/close_aside.hpp"
#include "datapath/control/device.hpp"
#include "datapath/control/requests.hpp"
#include "datapath/control/retirement.hpp"
#include "datapath/control/session_open.hpp"
#include "datapath/control/shares.hpp"
#include "urdma/abi/rdma_cm.hpp"

namespace urdma::control {
namespace {

constexpr int kMessagesPerTurn = 16;  // of one connection, before the next one's turn
constexpr std::size_t kHelloFds = 2;
// A provider waits for each reply before it asks again. What requests leave behind while the client's memory
// holds up their replies is bounded by this.
constexpr std::uint32_t kMostUnanswered = 64;

template <typename Body>
bool read_body(const Message& message, Body& body) {
  if (message.body.size() != sizeof(Body)) return false;
  std::memcpy(&body, message.body.data(), sizeof(Body));
  return true;
}

// What no client has reason to pass may block whoever closes it, or asks its file system about it: it is
// there as a closed one.
void drop_unexpected(std::vector<UniqueFd>& fds) {
  for (UniqueFd& fd : fds) {
    if (!is_expected_kind(fd.get())) close_aside(fd.release());
  }
}

// An XRC domain has the name of a file of any kind; its handler only asks what can be told at once.
bool may_bring_any_file(const Message& message) {
  return message.header.type == static_cast<std::uint32_t>(abi::MessageType::kOpenXrcd);
}

}  // namespace

Server::~Server() {
  for (const auto& [id, entry] : connections_) loop_.remove(entry->connection.descriptor());
  for (const UniqueFd& listener : listeners_) loop_.remove(listener.get());
}

Status Server::start(Node& node, const NodeDirectory& directory, Config config) {
  node_ = &node;
  config_ = std::move(config);
  spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  for (const Device& device : node.devices.all()) {
    const std::string name = fmt::format("{}/uverbs{}", abi::kDeviceDirectory, device.uverbs);
    auto accepted = [this, index = device.index](UniqueFd fd) { welcome(std::move(fd), index); };
    if (auto done = listen(directory, name, std::move(accepted)); !done) return done;
  }
  if (config_.on_channel) {
    const std::string name = fmt::format("{}/{}", abi::kDeviceDirectory, abi::rdma_cm::kDevice);
    if (auto done = listen(directory, name, config_.on_channel); !done) return done;
  }
  return listen(directory, abi::kControlSocket, [this](UniqueFd fd) {
    ConnectionId id = 0;
    add(std::move(fd), Kind::kFresh, id);
  });
}

Status Server::listen(const NodeDirectory& directory, const std::string& name,
                      std::function<void(UniqueFd)> accepted) {
  auto listener = directory.listen(name);
  if (!listener) return tl::make_unexpected(listener.error());
  const int fd = listener->get();
  listeners_.push_back(std::move(*listener));
  return loop_.add(fd, [this, fd, accepted = std::move(accepted)](std::uint32_t) {
    UniqueFd client(::accept4(fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (client.is_open()) return accepted(std::move(client));
    if (errno == EMFILE || errno == ENFILE) turn_away(fd);
  });
}

// There are no more descriptors: a client that waited would keep the listener ready, and this thread busy.
// One that has sent something already is closed aside, and until that is done the next one waits.
void Server::turn_away(int listener) {
  const auto take_spare = [this] { spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC)); };
  if (!spare_.is_open()) take_spare();
  spare_.reset();
  const int client = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (client < 0) return;
  close_socket(client);
  take_spare();
  spdlog::warn("a client is turned away: the daemon may open no more files");
}

Status Server::check_room(const Peer& peer) const {
  const auto is_own = [&](const auto& entry) { return entry.second->connection.peer().uid == peer.uid; };
  const auto own = std::count_if(connections_.begin(), connections_.end(), is_own);
  return check_share(
      {"connections", static_cast<std::uint64_t>(own), connections_.size(), node_->limits.max_connections}, 1,
      peer.uid, node_->owner, EMFILE);
}

Server::Entry* Server::add(UniqueFd fd, Kind kind, ConnectionId& id) {
  auto entry = std::make_unique<Entry>(Entry{Connection(std::move(fd)), kind});
  if (auto room = check_room(entry->connection.peer()); !room) {
    spdlog::warn("process {} is turned away: {}", entry->connection.peer().pid, room.error().message);
    if (kind == Kind::kIdentity) {
      // The program's own Welcome says why.
      const abi::Header header{static_cast<std::uint32_t>(abi::MessageType::kWelcome), EMFILE, 0};
      (void)entry->connection.send(header, bytes_of(error_text(room.error().message)), {});
    }
    return nullptr;
  }
  id = ++last_;
  if (!loop_.add(entry->connection.descriptor(), [this, id](std::uint32_t) { on_readable(id); }))
    return nullptr;
  return connections_.emplace(id, std::move(entry)).first->second.get();
}

void Server::welcome(UniqueFd fd, std::uint32_t device) {
  ConnectionId id = 0;
  Entry* entry = add(std::move(fd), Kind::kIdentity, id);
  if (entry == nullptr) return;
  const Identity& identity = node_->sessions.add_identity(id, device);
  const abi::Welcome body{abi::kMagic, abi::kVersion, identity.token, device,
                          static_cast<std::uint32_t>(::getpid())};
  const abi::Header header{static_cast<std::uint32_t>(abi::MessageType::kWelcome), 0, 0};
  if (!entry->connection.send(header, bytes_of(body), {})) close(id);
}

void Server::on_readable(ConnectionId id) {
  Message message;
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    const Received received = found->second->connection.receive(message);
    if (received != Received::kMessage || !may_bring_any_file(message)) drop_unexpected(message.fds);
    switch (received) {
      case Received::kNothing:
        return;
      case Received::kMessage: {
        const bool is_sound = take(id, *found->second, message);
        drop_unexpected(message.fds);  // of which an XRC domain has its name
        if (is_sound) break;
        [[fallthrough]];
      }
      case Received::kNonsense:
        spdlog::warn("process {} sent nonsense, and loses its connection",
                     found->second->connection.peer().pid);
        return close(id);
      case Received::kEnd:
        return close(id);
    }
  }
}

bool Server::take(ConnectionId id, Entry& entry, Message& message) {
  switch (entry.kind) {
    case Kind::kIdentity:
    case Kind::kUpcall:
      return false;  // nothing is ever sent on these
    case Kind::kFresh:
      return take_first(id, entry, message);
    case Kind::kRequest:
      return ++entry.unanswered <= kMostUnanswered && take_request(id, message);
  }
  return false;
}

bool Server::take_first(ConnectionId id, Entry& entry, Message& message) {
  const ReplyTo to{id, message.header.type, message.header.sequence};
  if (message.header.type == static_cast<std::uint32_t>(abi::MessageType::kHello)) {
    abi::Hello body;
    if (!read_body(message, body) || body.magic != abi::kMagic || message.fds.size() > kHelloFds)
      return false;
    hello(to, entry, message);
    return true;
  }
  if (message.header.type == static_cast<std::uint32_t>(abi::MessageType::kAttachUpcall)) {
    abi::AttachUpcall body;
    if (!read_body(message, body) || !message.fds.empty()) return false;
    attach_upcall(to, entry, body);
    return true;
  }
  if (message.header.type == static_cast<std::uint32_t>(abi::MessageType::kStatus)) {
    if (!message.body.empty() || !message.fds.empty()) return false;
    tell_status(to);
    return true;
  }
  return false;
}

void Server::hello(const ReplyTo& to, Entry& entry, Message& message) {
  abi::Hello body;
  std::memcpy(&body, message.body.data(), sizeof(body));
  auto session = open_session(*node_, to.connection, entry.connection.peer(), body, std::move(message.fds));
  if (!session) {
    spdlog::warn("process {} is refused: {}", entry.connection.peer().pid, session.error().message);
    return reply(to, tl::make_unexpected(session.error()));
  }
  entry.kind = Kind::kRequest;
  reply(to,
        std::optional<Reply>(describe_session(*node_, **session, config_.engine_page, config_.is_polling)));
}

void Server::attach_upcall(const ReplyTo& to, Entry& entry, const abi::AttachUpcall& attach) {
  const Identity* identity = node_->sessions.find_identity(attach.token);
  ClientSession* session =
      identity != nullptr ? node_->sessions.find_for_upcall(identity->connection, entry.connection.peer().pid)
                          : nullptr;
  if (session == nullptr)
    return reply(to, fail(EACCES, "the token is not that of a session of this process"));
  entry.kind = Kind::kUpcall;
  session->upcall = to.connection;
  reply(to, empty_reply());
}

void Server::tell_status(const ReplyTo& to) {
  const std::string json = config_.status();
  auto memory = memory::SharedMemory::create("urdma-status", json.size(), memory::ClientAccess::kReadOnly);
  if (!memory) return reply(to, tl::make_unexpected(memory.error()));
  std::memcpy(memory->data(), json.data(), json.size());
  const abi::StatusReply body{json.size()};
  const auto bytes = bytes_of(body);
  reply(to, std::optional<Reply>(Reply{{bytes.begin(), bytes.end()}, {memory->descriptor()}, nullptr}));
}

bool Server::take_request(ConnectionId id, Message& message) {
  const RequestRule* rule = find_rule(message.header.type);
  if (rule == nullptr || message.body.size() != rule->body_bytes || message.fds.size() > rule->most_fds)
    return false;
  ClientSession* session = node_->sessions.find_by_request(id);
  if (session == nullptr) return false;
  Request request{{id, message.header.type, message.header.sequence}, message.body, message.fds};
  const Outcome outcome = rule->handle(*node_, *session, request);
  if (!outcome || outcome->has_value()) reply(request.to, outcome);
  return true;
}

void Server::reply(const ReplyTo& to, const Outcome& outcome) {
  const auto found = connections_.find(to.connection);
  if (found == connections_.end()) return;
  Connection& connection = found->second->connection;
  if (found->second->unanswered > 0) --found->second->unanswered;  // Hello is not counted
  bool is_sent = false;
  if (outcome) {
    const Reply& content = outcome->value();
    is_sent = connection.send({to.type, 0, to.sequence}, content.body, content.fds);
    if (content.handed_over != nullptr) content.handed_over->close_descriptor();
  } else {
    const auto code = static_cast<std::uint32_t>(outcome.error().code);
    is_sent =
        connection.send({to.type, code, to.sequence}, bytes_of(error_text(outcome.error().message)), {});
  }
  if (!is_sent) close(to.connection);
}

void Server::send(ConnectionId id, abi::MessageType type, std::span<const std::byte> body) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  if (!found->second->connection.send({static_cast<std::uint32_t>(type), 0, 0}, body, {})) close(id);
}

void Server::close(ConnectionId id) {
  if (id == 0) return;
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  // Nothing more is read from it, also when it stays readable.
  loop_.remove(found->second->connection.descriptor());
  closing_.push_back(id);
}

void Server::settle() {
  // Ending a session closes further connections.
  while (!closing_.empty()) {
    for (const ConnectionId id : std::exchange(closing_, {})) end(id);
  }
}

void Server::end(ConnectionId id) {
  auto ended = connections_.extract(id);
  if (ended.empty()) return;
  ended.mapped()->connection.shut_down();
  switch (ended.mapped()->kind) {
    case Kind::kFresh:
      return;
    case Kind::kIdentity:
      node_->sessions.remove_identity(id);
      for (const std::uint32_t session : node_->sessions.ids_of_identity(id)) {
        if (ClientSession* found = node_->sessions.find(session)) end_session(*node_, *found, "");
      }
      return;
    case Kind::kRequest:
      if (ClientSession* found = node_->sessions.find_by_request(id)) end_session(*node_, *found, "");
      return;
    case Kind::kUpcall:
      // The client does without; it gets no more requests to convert.
      for (const auto& [number, session] : node_->sessions) {
        if (session->upcall == id) session->upcall = 0;
      }
      return;
  }
}

}  // namespace urdma::control
