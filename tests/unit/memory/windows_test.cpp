// Memory windows: what may be bound, what a window opens and to whom, and what closes it.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/memory/windows.hpp"

#include <gtest/gtest.h>

#include "urdma/base/verbs.hpp"

namespace urdma::memory {
namespace {

constexpr Accessor kOwner{PdId{7}, 1};
constexpr Accessor kSibling{PdId{7}, 2};
constexpr Accessor kStranger{PdId{8}, 3};
constexpr MemoryKey kRegionKey{0x100};
constexpr MemoryKey kWindowKey{0x200};
constexpr MemoryKey kBoundKey{0x2AB};
constexpr std::uint32_t kWrite = kAccessRemoteWrite;

class WindowsTest : public ::testing::Test {
 protected:
  WindowsTest() {
    region_.key = kRegionKey;
    region_.pd = kOwner.pd;
    region_.access = kAccessLocalWrite | kAccessMwBind;
    region_.iova = 0x10000;
    region_.address = 0x70000;
    region_.length = 0x1000;
    EXPECT_TRUE(table_.insert(region_));
    window_.kind = Region::Kind::kWindow;
    window_.key = kWindowKey;
    window_.pd = kOwner.pd;
    EXPECT_TRUE(table_.insert(window_));
  }
  void make_type_2() { window_.binding.type = WindowType::kType2; }
  [[nodiscard]] BindRequest request() const {
    return {window_.key, kBoundKey, kRegionKey, kWrite, 0x10100, 0x100};
  }
  bool bind(const BindRequest& request, const Accessor& who = kOwner) {
    return bind_window(table_, who, request, before_);
  }
  bool invalidate(MemoryKey key, const Accessor& who = kOwner) {
    return invalidate_window(table_, who, key, before_);
  }
  bool allows(MemoryKey key, std::uint64_t address, std::uint64_t bytes, const Accessor& who = kOwner,
              std::uint32_t access = kWrite) {
    return permit(table_, key, who, access, address, bytes, place_);
  }

  RegionTable table_{8};
  Region region_;
  Region window_;
  Region* before_ = nullptr;
  Place place_;
};

TEST_F(WindowsTest, Permit_WhatIsBoundAndNothingElse) {
  EXPECT_FALSE(allows(kWindowKey, 0x10100, 1)) << "not bound yet";
  ASSERT_TRUE(bind(request()));
  EXPECT_EQ(before_, nullptr);
  EXPECT_FALSE(allows(kWindowKey, 0x10100, 1)) << "its former key";
  ASSERT_TRUE(allows(kBoundKey, 0x10100, 0x100));
  EXPECT_EQ(place_.region, &region_);
  EXPECT_EQ(place_.address, 0x70100U);
  EXPECT_FALSE(allows(kBoundKey, 0x100FF, 1)) << "before it";
  EXPECT_FALSE(allows(kBoundKey, 0x10100, 0x101)) << "behind it";
  EXPECT_FALSE(allows(kBoundKey, 0x10100, 1, kOwner, kAccessRemoteRead)) << "not opened for that";
  EXPECT_FALSE(allows(kBoundKey, 0x10100, 1, kOwner, kAccessLocalWrite)) << "a window is for peers";
  EXPECT_FALSE(allows(kBoundKey, 0x10100, 1, kOwner, 0));
  EXPECT_TRUE(allows(kBoundKey, 0x10100, 1, kSibling)) << "type 1 is for the whole domain";
  EXPECT_FALSE(allows(kBoundKey, 0x10100, 1, kStranger));
  EXPECT_FALSE(allows(kRegionKey, 0x10100, 1)) << "the region itself stays closed";
}

TEST_F(WindowsTest, Permit_Type2IsForTheQpThatBoundIt) {
  make_type_2();
  ASSERT_TRUE(bind(request()));
  EXPECT_TRUE(allows(kBoundKey, 0x10100, 1));
  EXPECT_FALSE(allows(kBoundKey, 0x10100, 1, kSibling));
}

TEST_F(WindowsTest, BindWindow_ZeroBased) {
  make_type_2();
  BindRequest wanted = request();
  wanted.access |= kAccessZeroBased;
  ASSERT_TRUE(bind(wanted));
  ASSERT_TRUE(allows(kBoundKey, 0, 0x100));
  EXPECT_EQ(place_.address, 0x70100U);
  EXPECT_FALSE(allows(kBoundKey, 0x10100, 1));
  EXPECT_FALSE(allows(kBoundKey, 0, 0x101));
}

TEST_F(WindowsTest, BindWindow_Refused) {
  BindRequest wanted = request();
  EXPECT_FALSE(bind(wanted, kStranger)) << "a window of another domain";
  wanted.new_key = MemoryKey{0x3AB};
  EXPECT_FALSE(bind(wanted)) << "another window's index";
  wanted = request();
  wanted.window = kRegionKey;
  EXPECT_FALSE(bind(wanted)) << "no window";
  wanted = request();
  wanted.region = kWindowKey;
  EXPECT_FALSE(bind(wanted)) << "no region";
  wanted.region = MemoryKey{0x101};
  EXPECT_FALSE(bind(wanted)) << "a region's key counts as a whole";
  wanted = request();
  wanted.access |= kAccessZeroBased;
  EXPECT_FALSE(bind(wanted)) << "type 1 is never zero-based";
  for (const auto& [address, length] : {std::pair{0xFFFFULL, 1ULL},
                                        {0x10000ULL, 0x1001ULL},
                                        {0x10FFFULL, 2ULL},
                                        {0x10800ULL, UINT64_MAX},
                                        {UINT64_MAX, 2ULL}}) {
    wanted = request();
    wanted.address = address;
    wanted.length = length;
    EXPECT_FALSE(bind(wanted)) << std::hex << address << " " << length;
  }
  EXPECT_EQ(window_.key, kWindowKey);
  EXPECT_EQ(region_.windows, nullptr);
}

TEST_F(WindowsTest, BindWindow_TheRegionsRights) {
  region_.access = kAccessLocalWrite | kAccessRemoteWrite;
  EXPECT_FALSE(bind(request())) << "no windows allowed";
  region_.access = kAccessMwBind;
  EXPECT_FALSE(bind(request())) << "peers may not write what the program itself may not";
  BindRequest wanted = request();
  wanted.access = kAccessRemoteAtomic;
  EXPECT_FALSE(bind(wanted));
  wanted.access = kAccessRemoteRead;
  EXPECT_TRUE(bind(wanted));
  region_.pd = kStranger.pd;
  EXPECT_FALSE(bind(request())) << "a region of another domain";
}

TEST_F(WindowsTest, BindWindow_NullRegionsCarryNone) {
  region_.kind = Region::Kind::kNull;
  EXPECT_FALSE(bind(request()));
}

// Type 1: bound again at will, and closed by no bytes.
TEST_F(WindowsTest, BindWindow_Type1Again) {
  ASSERT_TRUE(bind(request()));
  BindRequest wanted = request();
  wanted.new_key = MemoryKey{0x2AC};
  wanted.address = 0x10800;
  ASSERT_TRUE(bind(wanted));
  EXPECT_EQ(before_, &region_);
  EXPECT_FALSE(allows(kBoundKey, 0x10100, 1));
  EXPECT_TRUE(allows(wanted.new_key, 0x10800, 1));
  EXPECT_FALSE(invalidate(wanted.new_key)) << "that is for type 2";
  EXPECT_TRUE(allows(wanted.new_key, 0x10800, 1));
  wanted = {window_.key, MemoryKey{0x2AD}, {}, 0, 0, 0};
  ASSERT_TRUE(bind(wanted));
  EXPECT_EQ(before_, &region_);
  EXPECT_FALSE(allows(wanted.new_key, 0x10800, 1));
  EXPECT_EQ(region_.windows, nullptr);
}

TEST_F(WindowsTest, BindWindow_Type2NeedsInvalidation) {
  make_type_2();
  BindRequest none = request();
  none.length = 0;
  EXPECT_FALSE(bind(none)) << "a type 2 window is not unbound by binding";
  ASSERT_TRUE(bind(request()));
  EXPECT_FALSE(bind(request())) << "bound already";
  ASSERT_TRUE(invalidate(kBoundKey));
  EXPECT_EQ(before_, &region_);
  EXPECT_FALSE(allows(kBoundKey, 0x10100, 1));
  EXPECT_EQ(region_.windows, nullptr);
  // A consumer that goes by the key of the allocation names the same window.
  BindRequest wanted = request();
  wanted.window = kWindowKey;
  EXPECT_TRUE(bind(wanted));
}

TEST_F(WindowsTest, InvalidateWindow_Refused) {
  make_type_2();
  ASSERT_TRUE(bind(request()));
  EXPECT_FALSE(invalidate(kWindowKey)) << "not its key now";
  EXPECT_FALSE(invalidate(kRegionKey)) << "regions are deregistered";
  EXPECT_FALSE(invalidate(MemoryKey{0x300}));
  EXPECT_FALSE(invalidate(kBoundKey, kSibling)) << "bound by another QP";
  EXPECT_FALSE(invalidate(kBoundKey, kStranger));
  EXPECT_TRUE(allows(kBoundKey, 0x10100, 1));
  EXPECT_TRUE(invalidate(kBoundKey));
}

TEST_F(WindowsTest, UnbindWindow_AnyOfSeveral) {
  Region others[2];
  for (std::uint32_t i = 0; i < 2; ++i) {
    others[i].kind = Region::Kind::kWindow;
    others[i].key = MemoryKey{0x1000 + (i << 8)};
    others[i].pd = kOwner.pd;
    ASSERT_TRUE(table_.insert(others[i]));
    BindRequest wanted = request();
    wanted.window = wanted.new_key = others[i].key;
    ASSERT_TRUE(bind(wanted));
  }
  ASSERT_TRUE(bind(request()));
  unbind_window(others[1]);  // in the middle
  EXPECT_FALSE(allows(others[1].key, 0x10100, 1));
  EXPECT_TRUE(allows(others[0].key, 0x10100, 1));
  EXPECT_TRUE(allows(kBoundKey, 0x10100, 1));
  unbind_all_windows(region_);
  EXPECT_EQ(region_.windows, nullptr);
  EXPECT_FALSE(allows(others[0].key, 0x10100, 1));
  EXPECT_FALSE(allows(kBoundKey, 0x10100, 1));
}

}  // namespace
}  // namespace urdma::memory
