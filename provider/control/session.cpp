// Opening a session: Welcome, Hello, the shared pages, the upcall connection.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/control/session.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "provider/control/event_pipe.hpp"
#include "provider/control/service.hpp"

namespace urdma::provider {

namespace {

// Empty polls yield on machines with at most this many cores: pollers outnumber them easily there.
constexpr int kFewCores = 4;

Result<abi::Welcome> read_welcome(int identity) {
  abi::Received message;
  // Only looked at: whoever holds a duplicate of the connection must find it, too.
  const int error = abi::receive_message(identity, message, MSG_PEEK);
  if (error == EPIPE)
    return fail(ENODEV,
                "the urdma daemon has closed the connection (is the node up, and may this user use it?)");
  if (error != 0) return fail_errno(error, "the device's descriptor is not a connection to an urdma daemon");
  message.close_fds();
  if (message.header.type == static_cast<std::uint32_t>(abi::MessageType::kWelcome) &&
      message.header.error != 0) {
    const auto* text = reinterpret_cast<const char*>(message.body);
    return fail(static_cast<int>(message.header.error),
                std::string(text, ::strnlen(text, std::min(message.body_bytes, sizeof(abi::ErrorText)))));
  }
  abi::Welcome welcome{};
  if (message.header.type != static_cast<std::uint32_t>(abi::MessageType::kWelcome) ||
      message.body_bytes < 2 * sizeof(std::uint32_t))
    return fail(EPROTO, "the device's descriptor did not begin with a Welcome");
  std::memcpy(&welcome, message.body, std::min(message.body_bytes, sizeof(welcome)));
  if (welcome.magic != abi::kMagic)
    return fail(EPROTO, "the device's descriptor did not begin with a Welcome of urdma's");
  if (welcome.version != abi::kVersion)
    return fail(EPROTONOSUPPORT, "the urdma daemon speaks version " + std::to_string(welcome.version) +
                                     " of the contract and this provider version " +
                                     std::to_string(abi::kVersion) +
                                     "; restart the node with the same release");
  if (message.body_bytes != sizeof(welcome)) return fail(EPROTO, "the daemon's Welcome has a wrong size");
  return welcome;
}

// The node's directory: NODE of the peer's address NODE/dev/uverbsN; empty when it has none.
std::string directory_of(int identity) {
  sockaddr_un address{};
  socklen_t length = sizeof(address);
  if (::getpeername(identity, reinterpret_cast<sockaddr*>(&address), &length) != 0) return {};
  if (address.sun_family != AF_UNIX || length <= offsetof(sockaddr_un, sun_path)) return {};
  const std::size_t bytes = length - offsetof(sockaddr_un, sun_path);
  const std::string path(address.sun_path, ::strnlen(address.sun_path, bytes));
  const std::size_t name = path.rfind('/');
  if (path.empty() || path[0] != '/' || name == 0) return {};
  const std::size_t device_directory = path.rfind('/', name - 1);
  if (device_directory == std::string::npos) return {};
  if (path.substr(device_directory + 1, name - device_directory - 1) != abi::kDeviceDirectory) return {};
  return path.substr(0, device_directory);
}

int connect_control(const char* directory, UniqueFd& connection) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) return errno;
  const int error = abi::connect_to(socket.get(), directory, abi::kControlSocket);
  if (error == 0) connection = std::move(socket);
  return error;
}

bool decides_to_yield(const abi::HelloReply& hello) {
  if (const char* wish = std::getenv("URDMA_YIELD"); wish != nullptr && *wish != '\0')
    return std::strcmp(wish, "0") != 0;
  cpu_set_t cores;
  CPU_ZERO(&cores);
  const bool is_known = ::sched_getaffinity(0, sizeof(cores), &cores) == 0;
  return hello.idle_polling == 0 && (!is_known || CPU_COUNT(&cores) <= kFewCores);
}

abi::Hello hello_of(const abi::Welcome& welcome) {
  abi::Hello hello{};
  hello.magic = abi::kMagic;
  hello.version = abi::kVersion;
  hello.token = welcome.token;
  std::snprintf(hello.program, sizeof(hello.program), "%s", ::program_invocation_short_name);
  return hello;
}

}  // namespace

Result<std::unique_ptr<Session>> Session::open(int identity) {
  const auto welcome = read_welcome(identity);
  if (!welcome) return tl::make_unexpected(welcome.error());
  std::unique_ptr<Session> session(new Session);
  std::string directory = directory_of(identity);
  const char* fallback = std::getenv(abi::kNodeVariable);
  if (directory.empty() && fallback != nullptr) directory = fallback;
  if (directory.empty())
    return fail(ENOENT,
                std::string("cannot tell the node's directory; run the program by `urdma run`, or set ") +
                    abi::kNodeVariable);
  if (Status connected = session->connect(*welcome, directory.c_str()); !connected)
    return tl::make_unexpected(connected.error());
  return session;
}

Status Session::connect(const abi::Welcome& welcome, const char* directory) {
  UniqueFd socket;
  if (const int error = connect_control(directory, socket); error != 0)
    return fail_errno(error, std::string("cannot connect to ") + directory + "/" + abi::kControlSocket);
  requests_.attach(std::move(socket));
  async_ = make_event_pipe();
  if (!async_.is_open()) return fail_errno(errno, "cannot make the pipe for asynchronous events");
  const UniqueFd memory(::open("/proc/self/mem", O_RDWR | O_CLOEXEC));
  if (!memory.is_open())
    return fail_errno(errno, "cannot open /proc/self/mem for the daemon to reach this program's buffers");
  const int fds[] = {memory.get(), async_.get()};
  std::vector<UniqueFd> received;
  if (const int error = requests_.call(abi::MessageType::kHello, hello_of(welcome), hello_, fds, &received))
    return fail_errno(error, "the urdma daemon refuses this program");
  if (Status mapped = map_pages(std::move(received)); !mapped) return mapped;
  if (const int error = connect_control(directory, upcall_); error != 0)
    return fail_errno(error, "cannot connect to the urdma daemon a second time");
  RequestChannel upcall_requests(liveness_);
  upcall_requests.attach(std::move(upcall_));
  if (const int error =
          upcall_requests.call(abi::MessageType::kAttachUpcall, abi::AttachUpcall{welcome.token}))
    return fail_errno(error, "the urdma daemon refuses the connection for its requests");
  upcall_ = upcall_requests.detach();
  yields_when_idle_ = decides_to_yield(hello_);
  conversion_ = std::make_unique<Conversion>(requests_, hello_.convert != 0);
  return {};
}

Status Session::map_pages(std::vector<UniqueFd> fds) {
  const std::uint32_t engines = hello_.engine_count;
  if (engines == 0 || engines > abi::kMaxEngines || fds.size() != engines + 2)
    return fail(EPROTO, "the urdma daemon's answer does not name its engines rightly");
  int error = engine_page_.map(fds[0].get(), sizeof(abi::EnginePage), Mapping::Access::kReadOnly);
  if (error == 0)
    error = session_page_.map(fds[1].get(), sizeof(abi::SessionPage), Mapping::Access::kReadWrite);
  if (error != 0) return fail_errno(error, "cannot map the memory that the urdma daemon shares");
  panel_.engines = reinterpret_cast<const abi::EnginePage*>(engine_page_.data());
  panel_.session = reinterpret_cast<abi::SessionPage*>(session_page_.data());
  if (panel_.engines->magic != abi::kMagic || panel_.engines->version != abi::kVersion)
    return fail(EPROTO, "the urdma daemon's shared memory is of another version");
  panel_.engine_count = engines;
  for (std::uint32_t i = 0; i < engines; ++i) {
    eventfds_[i] = std::move(fds[i + 2]);
    panel_.eventfds[i] = eventfds_[i].get();
  }
  liveness_.watch(panel_.engines);
  return {};
}

void Session::start(std::function<void()> on_gone) {
  liveness_.on_gone(std::move(on_gone));
  Service::instance().add(*this);
}

Session::~Session() { Service::instance().remove(*this); }

void Session::on_upcall_readable() {
  abi::Received message;
  const int error = abi::receive_message(upcall_.get(), message, MSG_DONTWAIT);
  if (error == EAGAIN) return;
  if (error != 0) {
    liveness_.declare_gone();
    return;
  }
  message.close_fds();
  if (message.header.type != static_cast<std::uint32_t>(abi::MessageType::kConvertRange) ||
      message.body_bytes != sizeof(abi::ConvertRange))
    return;  // of a later minor release: nothing that we must do
  abi::ConvertRange range;
  std::memcpy(&range, message.body, sizeof(range));
  conversion_->on_convert_range(range);
}

void Session::become_inherited() {
  inherited_ = true;
  liveness_.disown();
  requests_.abandon();
  upcall_.reset();
}

}  // namespace urdma::provider
