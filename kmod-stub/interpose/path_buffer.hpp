// A path on the stack: no allocation, and a path that does not fit is marked, never cut.
// Values only; async-signal-safe.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace urdma::stub {

// What follows the first `size` bytes, of which there must be as many: substr() would bring exceptions.
constexpr std::string_view rest_of(std::string_view text, std::size_t size) {
  return {text.data() + size, text.size() - size};
}

class PathBuffer {
 public:
  // Deliberately leaves the text uninitialised: 4 KiB that most paths do not need.
  PathBuffer() { text_[0] = '\0'; }

  PathBuffer& append(std::string_view part) {
    if (part.size() >= sizeof(text_) - size_) {
      is_too_long_ = true;
      return *this;
    }
    __builtin_memcpy(text_ + size_, part.data(), part.size());
    size_ += part.size();
    text_[size_] = '\0';
    return *this;
  }

  PathBuffer& append(std::uint32_t number) {
    char digits[10];
    std::size_t at = sizeof(digits);
    do {
      digits[--at] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number != 0);
    return append({digits + at, sizeof(digits) - at});
  }

  void clear() {
    size_ = 0;
    text_[0] = '\0';
    is_too_long_ = false;
  }

  [[nodiscard]] const char* c_str() const { return text_; }
  [[nodiscard]] std::string_view view() const { return {text_, size_}; }
  [[nodiscard]] bool is_too_long() const { return is_too_long_; }

 private:
  char text_[PATH_MAX];
  std::size_t size_ = 0;
  bool is_too_long_ = false;
};

}  // namespace urdma::stub
