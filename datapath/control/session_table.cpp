// Client contexts and processes (see session_table.hpp). Control thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/control/session_table.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "datapath/control/keys.hpp"

namespace urdma::control {
namespace {

// Fields of /proc/PID/stat, counted from 1.
constexpr int kFieldBehindName = 3;
constexpr int kStartTimeField = 22;
constexpr int kStackStartField = 28;

}  // namespace

Identity& SessionTable::add_identity(ConnectionId connection, std::uint32_t device) {
  Identity& identity = identities_[connection];
  identity.token = random_token();
  identity.connection = connection;
  identity.device = device;
  return identity;
}

const Identity* SessionTable::find_identity(const abi::Token& token) const {
  for (const auto& [connection, identity] : identities_) {
    if (tokens_equal(identity.token, token)) return &identity;
  }
  return nullptr;
}

ClientSession& SessionTable::add(std::unique_ptr<ClientSession> session) {
  while (next_session_ == 0 || sessions_.contains(next_session_)) ++next_session_;
  session->id = next_session_++;
  return *sessions_.emplace(session->id, std::move(session)).first->second;
}

ClientSession* SessionTable::find(std::uint32_t id) const {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : found->second.get();
}

ClientSession* SessionTable::find_by_request(ConnectionId connection) const {
  for (const auto& [id, session] : sessions_) {
    if (session->request == connection && !session->is_ending) return session.get();
  }
  return nullptr;
}

ClientSession* SessionTable::find_for_upcall(ConnectionId identity, pid_t pid) const {
  ClientSession* latest = nullptr;
  for (const auto& [id, session] : sessions_) {
    const bool fits = session->identity == identity && session->peer.pid == pid;
    if (fits && session->upcall == 0 && !session->is_ending) latest = session.get();
  }
  return latest;
}

std::vector<std::uint32_t> SessionTable::ids_of_identity(ConnectionId identity) const {
  std::vector<std::uint32_t> result;
  for (const auto& [id, session] : sessions_) {
    if (session->identity == identity) result.push_back(id);
  }
  return result;
}

Result<std::shared_ptr<ClientProcess>> SessionTable::process_of(const Peer& peer, UniqueFd mem_descriptor,
                                                                const std::vector<int>& wake_descriptors) {
  std::erase_if(processes_, [](const auto& process) { return process.expired(); });
  // Also where the program is known already: what is wrong with a Hello must not depend on that.
  if (auto good = memory::check_process_memory(mem_descriptor.get()); !good) {
    return tl::make_unexpected(good.error());
  }
  const ProgramIdentity identity = identify_program(peer.pid);
  for (const auto& weak : processes_) {
    auto process = weak.lock();
    if (process && identity.is_known() && process->identity == identity) return process;
  }
  auto space = memory::AddressSpace::create(mem_descriptor.release(), wake_descriptors);
  if (!space) return tl::make_unexpected(space.error());
  auto process = std::make_shared<ClientProcess>();
  process->identity = identity;
  process->space = std::move(*space);
  processes_.push_back(process);
  return process;
}

ProgramIdentity identify_program(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  if (pid == 0 || !std::getline(file, line)) return {};
  // The second field is a name in parentheses, which may hold anything.
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream fields(line.substr(name_end + 1));
  ProgramIdentity identity{pid, 0, 0};
  std::string field;
  for (int number = kFieldBehindName; number <= kStackStartField && fields >> field; ++number) {
    if (number == kStartTimeField) identity.start_time = std::strtoull(field.c_str(), nullptr, 10);
    if (number == kStackStartField) identity.stack_start = std::strtoull(field.c_str(), nullptr, 10);
  }
  return identity;
}

}  // namespace urdma::control
