// Extents of a client's memory: where they begin and end, and which are refused; whose descriptor is taken.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/memory/address_space.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/unit/memory/fixture.hpp"

namespace urdma::memory {
namespace {

class AddressSpaceTest : public ::testing::Test {
 protected:
  AddressSpaceTest() {
    OwnMemory own;
    auto made = AddressSpace::create(own.release(), {wake_.get()});
    EXPECT_TRUE(made);
    space_ = std::move(*made);
  }
  // The bytes of an extent with this id begin at id * 1 TiB: nothing reads them.
  static std::byte* base(std::uint32_t id) { return reinterpret_cast<std::byte*>(std::uint64_t{id} << 40); }
  bool add(std::uint32_t id, std::uint64_t address, std::uint64_t length) {
    return space_->add_extent({.id = id, .address = address, .length = length, .data = base(id)});
  }

  WakeEvent wake_;
  std::unique_ptr<AddressSpace> space_;
};

TEST_F(AddressSpaceTest, Resolve_Edges) {
  ASSERT_TRUE(add(1, 0x10000, 0x2000));
  EXPECT_EQ(space_->resolve(0x10000, 1), base(1));
  EXPECT_EQ(space_->resolve(0x10000, 0x2000), base(1));
  EXPECT_EQ(space_->resolve(0x11FFF, 1), base(1) + 0x1FFF);
  EXPECT_EQ(space_->resolve(0xFFFF, 1), nullptr);
  EXPECT_EQ(space_->resolve(0xFFFF, 2), nullptr);
  EXPECT_EQ(space_->resolve(0x12000, 1), nullptr);
  EXPECT_EQ(space_->resolve(0x11FFF, 2), nullptr);
  EXPECT_EQ(space_->resolve(0x10000, 0x2001), nullptr);
  EXPECT_EQ(space_->resolve(0x11000, UINT64_MAX), nullptr);
  EXPECT_EQ(space_->resolve(UINT64_MAX, 1), nullptr);
}

TEST_F(AddressSpaceTest, Resolve_NeighboursAreTwo) {
  ASSERT_TRUE(add(1, 0x10000, 0x1000));
  ASSERT_TRUE(add(2, 0x11000, 0x1000));
  EXPECT_EQ(space_->resolve(0x10FFF, 1), base(1) + 0xFFF);
  EXPECT_EQ(space_->resolve(0x11000, 1), base(2));
  EXPECT_EQ(space_->resolve(0x10FFF, 2), nullptr) << "they need not be neighbours here";
}

TEST_F(AddressSpaceTest, AddExtent_Overlapping) {
  ASSERT_TRUE(add(1, 0x10000, 0x4000));
  EXPECT_FALSE(add(2, 0x10000, 0x4000));
  EXPECT_FALSE(add(2, 0x11000, 0x1000)) << "inside";
  EXPECT_FALSE(add(2, 0xF000, 0x2000)) << "over the start";
  EXPECT_FALSE(add(2, 0x13000, 0x2000)) << "over the end";
  EXPECT_FALSE(add(2, 0x0, 0x100000)) << "around";
  EXPECT_TRUE(add(2, 0xF000, 0x1000));
  EXPECT_TRUE(add(3, 0x14000, 0x1000));
  EXPECT_EQ(space_->extent_count(), 3U);
  EXPECT_EQ(space_->resolve(0x12000, 0x2000), base(1) + 0x2000);
}

TEST_F(AddressSpaceTest, RemoveExtent) {
  ASSERT_TRUE(add(5, 0x10000, 0x1000));
  EXPECT_EQ(space_->remove_extent(4).id, 0U);
  const Extent removed = space_->remove_extent(5);
  EXPECT_EQ(removed.id, 5U);
  EXPECT_EQ(removed.data, base(5));
  EXPECT_EQ(space_->resolve(0x10000, 1), nullptr);
  EXPECT_TRUE(add(6, 0x10000, 0x1000));
}

TEST_F(AddressSpaceTest, RandomExtents_AsInAModel) {
  std::map<std::uint32_t, Extent> model;
  std::mt19937 random(1);
  for (std::uint32_t step = 1; step <= 3000; ++step) {
    const std::uint64_t address = std::uint64_t{random() % 64} * 0x1000;
    const std::uint64_t length = std::uint64_t{random() % 8 + 1} * 0x1000;
    if (random() % 3 != 0) {
      const bool is_free = std::none_of(model.begin(), model.end(), [&](const auto& entry) {
        return entry.second.address < address + length &&
               address < entry.second.address + entry.second.length;
      });
      ASSERT_EQ(add(step, address, length), is_free);
      if (is_free) model[step] = {.id = step, .address = address, .length = length, .data = base(step)};
    } else if (!model.empty()) {
      const std::uint32_t id = std::next(model.begin(), random() % model.size())->first;
      ASSERT_EQ(space_->remove_extent(id).id, id);
      model.erase(id);
    }
    const std::uint64_t asked = std::uint64_t{random() % 72} * 0x1000 + random() % 3 * 0x7FF;
    const std::uint64_t bytes = random() % 0x3000 + 1;
    std::byte* expected = nullptr;
    for (const auto& [id, extent] : model) {
      if (asked >= extent.address && asked + bytes <= extent.address + extent.length)
        expected = extent.data + (asked - extent.address);
    }
    ASSERT_EQ(space_->resolve(asked, bytes), expected);
  }
}

// The daemon may be root: it must not write to whatever its client has opened.
TEST(AddressSpace, Create_OnlyMemory) {
  const WakeEvent wake;
  for (const char* path : {"/dev/null", "/proc/self/oom_score_adj", "/proc/self/comm", "/proc/self/stat"}) {
    const int fd = ::open(path, O_RDWR | O_CLOEXEC) >= 0 ? ::open(path, O_RDWR | O_CLOEXEC)
                                                         : ::open(path, O_RDONLY | O_CLOEXEC);
    ASSERT_GE(fd, 0) << path;
    EXPECT_FALSE(AddressSpace::create(fd, {wake.get()})) << path;
  }
}

TEST(AddressSpace, Create_OpenForBothDirections) {
  const WakeEvent wake;
  EXPECT_FALSE(AddressSpace::create(::open("/proc/self/mem", O_RDONLY | O_CLOEXEC), {wake.get()}));
  EXPECT_FALSE(AddressSpace::create(-1, {wake.get()}));
}

TEST(AddressSpace, Create_OwnsTheDescriptor) {
  const WakeEvent wake;
  OwnMemory own;
  const int fd = own.release();
  {
    auto made = AddressSpace::create(fd, {wake.get()});
    ASSERT_TRUE(made);
    EXPECT_GE(::fcntl(fd, F_GETFD), 0);
  }
  EXPECT_LT(::fcntl(fd, F_GETFD), 0);
}

}  // namespace
}  // namespace urdma::memory
