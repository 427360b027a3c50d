// Where payloads are, and copying between pieces of all shapes.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/engine/pieces.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>

#include <atomic>
#include <random>
#include <thread>

#include "tests/unit/engine/fixture.hpp"

namespace urdma::engine {
namespace {

constexpr PdId kPd{1};

Pieces of(std::span<std::byte> bytes, const std::vector<std::uint32_t>& lengths) {
  Pieces pieces;
  std::size_t at = 0;
  for (const std::uint32_t length : lengths) {
    pieces.add({0, bytes.data() + at, length, nullptr});
    at += length;
  }
  return pieces;
}

// Cuts `total` bytes into at most kMostPieces lengths, some of them 0.
std::vector<std::uint32_t> cut(std::mt19937& random, std::uint32_t total) {
  std::vector<std::uint32_t> lengths;
  while (total > 0 && lengths.size() + 1 < kMostPieces) {
    const std::uint32_t length = std::min<std::uint32_t>(total, random() % (total / 3 + 4));
    lengths.push_back(length);
    total -= length;
  }
  lengths.push_back(total);
  return lengths;
}

TEST(CopyPieces, ManyShapes) {
  std::mt19937 random(9);
  for (int round = 0; round < stress_rounds(2000); ++round) {
    const std::uint32_t total = random() % 600;
    const std::uint32_t room = total + random() % 40;
    std::vector<std::byte> source(total + 1);
    for (std::byte& byte : source) byte = std::byte(random());
    std::vector<std::byte> target(room + 64, std::byte{0xEE});
    const std::size_t shift = random() % 16;
    copy_pieces(of(source, cut(random, total)), of(std::span(target).subspan(shift), cut(random, room)));
    ASSERT_EQ(std::memcmp(target.data() + shift, source.data(), total), 0) << "round " << round;
    for (std::size_t i = 0; i < shift; ++i) ASSERT_EQ(target[i], std::byte{0xEE});
    for (std::size_t i = shift + total; i < target.size(); ++i) {
      ASSERT_EQ(target[i], std::byte{0xEE}) << "byte " << i << " of round " << round;
    }
  }
}

TEST(CopyPieces, Nothing) {
  std::byte byte{7};
  copy_pieces(Pieces{}, Pieces{});
  copy_pieces(of({&byte, 0}, {0}), of({&byte, 1}, {1}));
  EXPECT_EQ(byte, std::byte{7});
}

// A program may send from a buffer to an overlapping one of its own: as memmove.
TEST(CopyPieces, Overlap) {
  for (const std::uint32_t length : {1U, 7U, 8U, 9U, 100U, 5000U}) {
    for (const int shift : {-9, -8, -1, 1, 3, 8, 64}) {
      std::vector<std::byte> bytes(length + 200);
      for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(i * 31);
      std::vector<std::byte> expected = bytes;
      std::memmove(expected.data() + 100 + shift, expected.data() + 100, length);
      copy_pieces(of({bytes.data() + 100, length}, {length}),
                  of({bytes.data() + 100 + shift, length}, {length}));
      ASSERT_EQ(bytes, expected) << length << " bytes by " << shift;
    }
  }
}

// Programs spin on the last byte, or on an aligned word at the end: all that is before it is there then.
TEST(CopyPieces, LastBytesLast) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the race is what is tested";
#endif
  struct Shape {
    std::uint32_t bytes;
    std::size_t shift;
  };
  const int rounds = stress_rounds(300);
  for (const Shape shape :
       {Shape{64, 0}, Shape{256, 0}, Shape{4096, 0}, Shape{300, 5}, Shape{8, 0}, Shape{3, 1}}) {
    alignas(64) static std::byte target[8192];
    std::vector<std::byte> source(shape.bytes);
    std::atomic<int> turn{0};
    std::atomic<int> torn{0};
    std::thread reader([&] {
      const std::atomic_ref<std::byte> last(target[shape.shift + shape.bytes - 1]);
      for (int round = 1; round <= rounds; ++round) {
        const auto value = std::byte(round % 251 + 1);
        for (int spins = 0; last.load(std::memory_order_acquire) != value; ++spins) {
          if (spins > 2000) std::this_thread::yield();
        }
        for (std::uint32_t i = 0; i < shape.bytes; ++i) {
          const std::atomic_ref<std::byte> byte(target[shape.shift + i]);
          if (byte.load(std::memory_order_relaxed) != value) ++torn;
        }
        turn.store(round, std::memory_order_release);
      }
    });
    for (int round = 1; round <= rounds; ++round) {
      std::fill(source.begin(), source.end(), std::byte(round % 251 + 1));
      copy_pieces(of(source, {shape.bytes}), of({target + shape.shift, shape.bytes}, {shape.bytes}));
      while (turn.load(std::memory_order_acquire) != round) std::this_thread::yield();
    }
    reader.join();
    EXPECT_EQ(torn, 0) << shape.bytes << " bytes";
  }
}

class ResolveTest : public ::testing::Test {
 protected:
  ResolveTest() : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    auto made = memory::AddressSpace::create(::open("/proc/self/mem", O_RDWR | O_CLOEXEC), {wake_});
    EXPECT_TRUE(made);
    space_ = std::move(*made);
    add(first_, 1, 0x100000, 0x1000);
    add(second_, 2, 0x200000, 0x2000);
    // Of the second region, the first page is mapped here.
    EXPECT_TRUE(space_->add_extent({.id = 1, .address = 0x200000, .length = 0x1000, .data = here_.data()}));
  }
  ~ResolveTest() override {
    space_.reset();
    ::close(wake_);
  }
  void add(memory::Region& region, std::uint32_t key, std::uint64_t address, std::uint64_t length) {
    region.key = key_of(key);
    region.pd = kPd;
    region.access = kAccessLocalWrite;
    region.iova = region.address = address;
    region.length = length;
    region.space = space_.get();
    EXPECT_TRUE(regions_.insert(region));
  }
  static MemoryKey key_of(std::uint32_t index) { return MemoryKey{index << 8}; }
  bool resolve(const std::vector<transport::Sge>& elements, std::uint64_t offset, std::uint32_t length) {
    pieces_.clear();
    return resolve_elements({regions_, {kPd}}, elements, kAccessLocalWrite, offset, length, pieces_);
  }

  int wake_;
  std::vector<std::byte> here_ = std::vector<std::byte>(0x1000);
  std::unique_ptr<memory::AddressSpace> space_;
  memory::RegionTable regions_{8};
  memory::Region first_;
  memory::Region second_;
  Pieces pieces_;
};

TEST_F(ResolveTest, ResolveElements_Offsets) {
  const std::vector<transport::Sge> elements = {{0x100010, 10, key_of(1)},
                                                {0, 0, key_of(99)},  // no bytes: no key is looked at
                                                {0x200000, 20, key_of(2)},
                                                {0x100800, 30, key_of(1)}};
  ASSERT_TRUE(resolve(elements, 0, 60));
  ASSERT_EQ(pieces_.count, 3U);
  ASSERT_TRUE(resolve(elements, 9, 2));
  ASSERT_EQ(pieces_.count, 2U);
  EXPECT_EQ(pieces_.items[0].address, 0x100019U);
  EXPECT_EQ(pieces_.items[0].length, 1U);
  EXPECT_EQ(pieces_.items[1].address, 0x200000U);
  EXPECT_EQ(pieces_.items[1].length, 1U);
  ASSERT_TRUE(resolve(elements, 10, 20));
  ASSERT_EQ(pieces_.count, 1U);
  ASSERT_TRUE(resolve(elements, 31, 29));
  ASSERT_EQ(pieces_.count, 1U);
  EXPECT_EQ(pieces_.items[0].address, 0x100801U);
  EXPECT_EQ(pieces_.items[0].length, 29U);
  ASSERT_TRUE(resolve(elements, 60, 0));
  EXPECT_EQ(pieces_.count, 0U);
  EXPECT_FALSE(resolve(elements, 59, 2)) << "more than there is";
  EXPECT_FALSE(resolve(elements, 1000, 1));
}

TEST_F(ResolveTest, ResolveElements_Mapped) {
  EXPECT_TRUE(resolve({{0x200010, 16, key_of(2)}}, 0, 16));
  EXPECT_TRUE(pieces_.is_mapped);
  EXPECT_EQ(pieces_.items[0].local, here_.data() + 0x10);
  EXPECT_TRUE(resolve({{0x200FF8, 16, key_of(2)}}, 0, 16));
  EXPECT_FALSE(pieces_.is_mapped) << "half of it is not";
  EXPECT_TRUE(resolve({{0x200010, 16, key_of(2)}, {0x100000, 1, key_of(1)}}, 0, 17));
  EXPECT_FALSE(pieces_.is_mapped) << "one of two is not";
}

TEST_F(ResolveTest, ResolveElements_Denied) {
  EXPECT_FALSE(resolve({{0x100000, 1, key_of(3)}}, 0, 1)) << "no such key";
  EXPECT_FALSE(resolve({{0x100FFF, 2, key_of(1)}}, 0, 2)) << "over the end";
  EXPECT_TRUE(resolve({{0x100FFF, 2, key_of(1)}}, 0, 1)) << "only what is touched is judged";
  EXPECT_FALSE(resolve({{UINT64_MAX, 2, key_of(1)}}, 1, 1)) << "the address wraps";
  first_.access = 0;
  EXPECT_FALSE(resolve({{0x100000, 1, key_of(1)}}, 0, 1)) << "no local write";
  first_.pd = PdId{2};
  pieces_.clear();
  EXPECT_FALSE(resolve_range({regions_, {kPd}}, key_of(1), 0, 0x100000, 1, pieces_)) << "another domain";
}

TEST_F(ResolveTest, ResolveElements_OnDemandIsNeverMapped) {
  second_.access |= kAccessOnDemand;
  EXPECT_TRUE(resolve({{0x200010, 16, key_of(2)}}, 0, 16));
  EXPECT_FALSE(pieces_.is_mapped);
}

TEST_F(ResolveTest, ResolveRange_Null) {
  memory::Region null;
  null.kind = memory::Region::Kind::kNull;
  null.key = key_of(3);
  null.pd = kPd;
  null.access = kAccessLocalWrite;
  ASSERT_TRUE(regions_.insert(null));
  Pieces source;
  ASSERT_TRUE(resolve_range({regions_, {kPd}}, null.key, 0, UINT64_MAX, 100, source)) << "any address";
  Pieces target;
  std::array<std::byte, 100> bytes;
  bytes.fill(std::byte{7});
  target.add({0, bytes.data(), 100, nullptr});
  copy_pieces(source, target);
  for (const std::byte byte : bytes) ASSERT_EQ(byte, std::byte{0});
  // Writes go nowhere, and no later read finds them.
  bytes.fill(std::byte{7});
  Pieces sink;
  ASSERT_TRUE(resolve_range({regions_, {kPd}}, null.key, kAccessLocalWrite, 5, 100, sink));
  copy_pieces(target, sink);
  copy_pieces(source, target);
  for (const std::byte byte : bytes) ASSERT_EQ(byte, std::byte{0});
  EXPECT_FALSE(resolve_range({regions_, {kPd}}, null.key, kAccessRemoteRead, 5, 1, sink)) << "not for peers";
  EXPECT_FALSE(resolve_range({regions_, {PdId{99}}}, null.key, 0, 5, 1, sink)) << "another domain";
  EXPECT_TRUE(resolve({{0x100000, 1, key_of(1)}, {0, 50, null.key}}, 0, 51));
  EXPECT_EQ(pieces_.space(), space_.get());
}

TEST_F(ResolveTest, ResolveElements_AsManyAsThereMayBe) {
  std::vector<transport::Sge> elements(kMostPieces + 1, {0x100000, 1, key_of(1)});
  EXPECT_TRUE(resolve(elements, 0, kMostPieces));
  EXPECT_EQ(pieces_.count, kMostPieces);
  EXPECT_FALSE(resolve(elements, 0, kMostPieces + 1)) << "no room for one more";
}

}  // namespace
}  // namespace urdma::engine
