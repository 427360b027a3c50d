// What a control-path function returns: its value, or an errno with a sentence for a person.
// Never used on a data path. Usable from any thread.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cerrno>
#include <cstring>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace urdma {

// `code` is a positive errno value. `message` is one sentence, without a full stop, that says what
// was being done, why it failed and, where there is something to do, what.
struct Error {
  int code = 0;
  std::string message;
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

inline tl::unexpected<Error> fail(int code, std::string message) {
  return tl::make_unexpected(Error{code, std::move(message)});
}

// An error whose reason is `code`'s own text: "WHAT: No such file or directory".
inline tl::unexpected<Error> fail_errno(int code, std::string what) {
  return fail(code, std::move(what) + ": " + std::strerror(code));
}

}  // namespace urdma
