// `urdma run`: starts a program in whose eyes the node's device is there. It becomes the program: nothing of
// urdma stays around it. Single-threaded.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "tools/commands.hpp"
#include "tools/node_location.hpp"
#include "urdma/abi/control.hpp"

namespace urdma::tools {
namespace {

constexpr int kNotFound = 127;  // as a shell has it
constexpr int kNotStarted = 126;
// What libibverbs appends to a driver's name.
constexpr std::string_view kDriverSuffix = "-rdmav34.so";

struct Parts {
  std::string stub;    // path of the library that stands for the kernel
  std::string driver;  // path of the provider, as IBV_DRIVERS names it
};

Result<Parts> find_parts() {
  Parts parts;
  parts.stub = find_part({"../lib/liburdma-kstub.so", "../kmod-stub/liburdma-kstub.so"});
  const std::string provider = find_part({"../lib/liburdma-rdmav34.so", "../provider/liburdma-rdmav34.so"});
  if (parts.stub.empty() || provider.empty()) {
    return fail(
        ENOENT,
        fmt::format("liburdma-kstub.so and liburdma-rdmav34.so are not in {}/../lib, where they belong",
                    own_directory()));
  }
  parts.driver = provider.substr(0, provider.size() - kDriverSuffix.size());
  if (parts.stub.find_first_of(" :") != std::string::npos ||
      parts.driver.find_first_of(":;") != std::string::npos) {
    return fail(EINVAL,
                fmt::format("the directory {} has a space, colon or semicolon in its name, which the dynamic "
                            "linker cannot take; move the installation",
                            own_directory()));
  }
  return parts;
}

// `list` without `item`, and `item` behind it. The separators of both kinds of list are spaces, colons,
// semicolons.
std::string with_last(const char* list, const std::string& item) {
  std::string words = list != nullptr ? list : "";
  for (char& c : words) {
    if (c == ' ' || c == ';') c = ':';
  }
  std::istringstream stream(words);
  std::string result;
  for (std::string word; std::getline(stream, word, ':');) {
    if (!word.empty() && word != item) result += word + ":";
  }
  return result + item;
}

}  // namespace

int run(const std::string& name, const std::vector<std::string>& command) {
  const auto node = find_node(name);
  if (!node) return complain(node.error().message);
  const auto parts = find_parts();
  if (!parts) return complain(parts.error().message);
  // Behind whatever a person preloads: librspreload calls the next one in line.
  ::setenv("LD_PRELOAD", with_last(std::getenv("LD_PRELOAD"), parts->stub).c_str(), 1);
  // RDMAV_DRIVERS, where it is set, hides the other.
  const char* drivers = std::getenv("RDMAV_DRIVERS") != nullptr ? "RDMAV_DRIVERS" : "IBV_DRIVERS";
  ::setenv(drivers, with_last(std::getenv(drivers), parts->driver).c_str(), 1);
  ::setenv(abi::kNodeVariable, node->directory.c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  const int error = errno;
  complain(fmt::format("cannot run {}: {}", command[0], std::strerror(error)));
  return error == ENOENT ? kNotFound : kNotStarted;
}

}  // namespace urdma::tools
