// The copier: order, the last byte last, atomics, memory that is not there, patience, a dead process.
// The program whose memory it reaches is this test.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "datapath/memory/copier.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/unit/memory/fixture.hpp"

namespace urdma::memory {
namespace {

using Kind = CopyJob::Kind;
using Clock = std::chrono::steady_clock;

std::uint64_t address_of(const void* at) { return reinterpret_cast<std::uint64_t>(at); }

class CopierTest : public ::testing::Test {
 protected:
  // Waits for one job.
  CopyJob& finish() {
    CopyJob* job = nullptr;
    while ((job = copier_.take_done()) == nullptr) std::this_thread::yield();
    return *job;
  }
  // Does one job with one segment, and says whether it succeeded.
  bool move(Kind kind, void* at, std::byte* local, std::uint32_t length) {
    CopySegment segment{address_of(at), local, length};
    CopyJob job;
    job.kind = kind;
    job.segments = {&segment, 1};
    copier_.submit(job);
    EXPECT_EQ(&finish(), &job);
    return !job.failed;
  }

  OwnMemory own_;
  WakeEvent wake_;
  Copier copier_{own_.get(), {wake_.get()}};
};

TEST_F(CopierTest, Submit_ReadsAndWrites) {
  std::vector<std::byte> program(100'000);
  std::vector<std::byte> local(program.size());
  for (std::size_t i = 0; i < local.size(); ++i) local[i] = std::byte(i * 7);
  EXPECT_TRUE(move(Kind::kWrite, program.data(), local.data(), 100'000));
  EXPECT_EQ(program, local);
  std::vector<std::byte> back(program.size());
  EXPECT_TRUE(move(Kind::kRead, program.data(), back.data(), 100'000));
  EXPECT_EQ(back, local);
  EXPECT_EQ(copier_.outstanding(), 0U);
}

TEST_F(CopierTest, Submit_WakesTheSubmitter) {
  std::byte byte{};
  EXPECT_TRUE(move(Kind::kRead, &byte, &byte, 1));
  EXPECT_GE(wake_.wait_ms(1000), 1U);
}

// More segments than one system call takes, some of which follow one another in the program.
TEST_F(CopierTest, Submit_ManySegments) {
  constexpr std::uint32_t kSegments = 200;
  std::vector<std::byte> program(kSegments * 16);
  std::vector<std::byte> local(kSegments * 4);
  for (std::size_t i = 0; i < local.size(); ++i) local[i] = std::byte(i);
  std::vector<CopySegment> segments;
  std::uint64_t at = address_of(program.data());
  for (std::uint32_t i = 0; i < kSegments; ++i) {
    segments.push_back({at, local.data() + i * 4, 4});
    at += i % 3 == 0 ? 16 : 4;
  }
  segments.insert(segments.begin() + 5, {address_of(program.data()), local.data(), 0});
  CopyJob job;
  job.kind = Kind::kWrite;
  job.segments = segments;
  copier_.submit(job);
  EXPECT_FALSE(finish().failed);
  for (const CopySegment& segment : segments) {
    EXPECT_EQ(std::memcmp(reinterpret_cast<void*>(segment.address), segment.local, segment.length), 0);
  }
}

TEST_F(CopierTest, Submit_NoBytes) {
  CopyJob job;
  job.kind = Kind::kWrite;
  copier_.submit(job);
  EXPECT_FALSE(finish().failed);
  std::byte byte{7};
  EXPECT_TRUE(move(Kind::kWrite, &byte, &byte, 0));
  EXPECT_TRUE(move(Kind::kRead, &byte, &byte, 0));
}

TEST_F(CopierTest, TakeDone_OrderOfSubmission) {
  std::vector<CopyJob> jobs(3000);
  std::vector<CopySegment> segments(jobs.size());
  std::uint64_t program = 0;
  std::uint64_t local = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    segments[i] = {address_of(&program), reinterpret_cast<std::byte*>(&local), 8};
    jobs[i].kind = i % 5 == 4 ? Kind::kFence : Kind::kRead;
    if (jobs[i].kind != Kind::kFence) jobs[i].segments = {&segments[i], 1};
    copier_.submit(jobs[i]);
  }
  EXPECT_EQ(copier_.outstanding(), jobs.size());
  for (CopyJob& job : jobs) ASSERT_EQ(&finish(), &job);
  EXPECT_EQ(copier_.take_done(), nullptr);
}

// A later job sees what an earlier one wrote, and a fence is done when all before it are.
TEST_F(CopierTest, Fence_AllBeforeItIsDone) {
  std::vector<std::byte> program(1 << 20);
  std::vector<std::byte> local(program.size(), std::byte{0x5A});
  CopySegment segment{address_of(program.data()), local.data(), 1 << 20};
  CopyJob write;
  write.kind = Kind::kWrite;
  write.segments = {&segment, 1};
  CopyJob fence;
  fence.kind = Kind::kFence;
  copier_.submit(write);
  copier_.submit(fence);
  ASSERT_EQ(&finish(), &write);
  ASSERT_EQ(&finish(), &fence);
  EXPECT_EQ(program, local);
}

// Programs spin on the last byte of what they receive: all others must be there by then.
TEST_F(CopierTest, Write_LastByteLast) {
  const int rounds = stress_rounds(300);
  constexpr std::uint32_t kBytes = 12'288 + 57;
  std::vector<std::byte> program(kBytes);
  std::vector<std::byte> local(kBytes);
  std::vector<CopySegment> segments;  // in three pieces, the last one of a single byte
  segments.push_back({address_of(program.data()), local.data(), 8192});
  segments.push_back({address_of(program.data()) + 8192, local.data() + 8192, kBytes - 8192 - 1});
  segments.push_back({address_of(program.data()) + kBytes - 1, local.data() + kBytes - 1, 1});
  for (int round = 1; round <= rounds; ++round) {
    const auto value = std::byte(round % 255 + 1);
    std::fill(local.begin(), local.end(), value);
    CopyJob job;
    job.kind = Kind::kWrite;
    job.segments = {segments.data(), round % 2 == 0 ? 3U : 2U};
    if (round % 2 != 0) segments[1].length = kBytes - 8192;
    copier_.submit(job);
    const std::atomic_ref<std::byte> last(program[kBytes - 1]);
    while (last.load(std::memory_order_acquire) != value) std::this_thread::yield();
    for (std::uint32_t i = 0; i < kBytes; ++i) ASSERT_EQ(program[i], value) << "byte " << i;
    finish();
    segments[1].length = kBytes - 8192 - 1;
  }
}

TEST_F(CopierTest, Atomics_ReturnTheOldValue) {
  alignas(8) std::uint64_t value = 40;
  CopyJob add;
  add.kind = Kind::kFetchAdd;
  add.address = address_of(&value);
  add.operand = 2;
  copier_.submit(add);
  EXPECT_EQ(copier_.outstanding_atomics(), 1U);
  finish();
  EXPECT_EQ(copier_.outstanding_atomics(), 0U);
  EXPECT_EQ(add.original, 40U);
  EXPECT_EQ(value, 42U);
  CopyJob swap = add;
  swap.kind = Kind::kCompareSwap;
  swap.compare = 41;
  swap.operand = 7;
  copier_.submit(swap);
  finish();
  EXPECT_EQ(swap.original, 42U);
  EXPECT_EQ(value, 42U) << "41 was not there";
  swap.compare = 42;
  copier_.submit(swap);
  finish();
  EXPECT_EQ(swap.original, 42U);
  EXPECT_EQ(value, 7U);
}

TEST_F(CopierTest, Atomics_MissingMemoryFails) {
  const ScratchPages pages(1);
  pages.unmap();
  CopyJob add;
  add.kind = Kind::kFetchAdd;
  add.address = pages.address();
  copier_.submit(add);
  EXPECT_TRUE(finish().failed);
}

TEST_F(CopierTest, Read_MissingMemoryFailsAtOnce) {
  const ScratchPages pages(1);
  pages.unmap();
  std::byte local[16];
  const auto start = Clock::now();
  EXPECT_FALSE(move(Kind::kRead, pages.data(), local, 16));
  EXPECT_LT(Clock::now() - start, std::chrono::milliseconds(300));
}

TEST_F(CopierTest, Read_RunsIntoAHole) {
  const ScratchPages pages(2);
  ::munmap(pages.data() + 4096, 4096);
  std::vector<std::byte> local(8192);
  EXPECT_FALSE(move(Kind::kRead, pages.data(), local.data(), 4097));
  EXPECT_TRUE(move(Kind::kRead, pages.data(), local.data(), 4096));
}

// A page that can be read and not written, as one is that its program is converting.
class ProtectedPage {
 public:
  ProtectedPage()
      : data_(
            static_cast<std::byte*>(::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~ProtectedPage() { ::munmap(data_, kBytes); }
  ProtectedPage(const ProtectedPage&) = delete;
  ProtectedPage& operator=(const ProtectedPage&) = delete;
  [[nodiscard]] std::byte* data() const { return data_; }
  void release() const { ::mprotect(data_, kBytes, PROT_READ | PROT_WRITE); }

 private:
  static constexpr std::size_t kBytes = 4096;
  std::byte* data_;
};

// A failed write is tried again for half a second, once.
TEST_F(CopierTest, Write_PatientOnlyOnce) {
  const ProtectedPage page;
  std::byte local[16]{};
  const auto start = Clock::now();
  EXPECT_FALSE(move(Kind::kWrite, page.data(), local, 16));
  const auto first = Clock::now();
  EXPECT_GE(first - start, std::chrono::milliseconds(400));
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(move(Kind::kWrite, page.data(), local, 16));
  EXPECT_LT(Clock::now() - first, std::chrono::milliseconds(400));
}

TEST_F(CopierTest, Write_WaitsForProtectedPages) {
  const ProtectedPage page;
  std::byte local[16];
  std::memset(local, 0x3C, sizeof local);
  std::thread helper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    page.release();
  });
  EXPECT_TRUE(move(Kind::kWrite, page.data() + 100, local, 16));
  helper.join();
  EXPECT_EQ(std::memcmp(page.data() + 100, local, 16), 0);
}

// A peer counts its retries meanwhile: it must hear of this before they are used up.
TEST_F(CopierTest, Write_MissingMemoryFailsAtOnce) {
  const ScratchPages pages(2);
  ::munmap(pages.data() + 4096, 4096);
  std::vector<std::byte> local(8192);
  const auto start = Clock::now();
  EXPECT_FALSE(move(Kind::kWrite, pages.data(), local.data(), 4097)) << "a hole at its end";
  EXPECT_FALSE(move(Kind::kWrite, pages.data() + 4096, local.data(), 1));
  EXPECT_LT(Clock::now() - start, std::chrono::milliseconds(300));
  EXPECT_TRUE(move(Kind::kWrite, pages.data(), local.data(), 4096));
}

// A failure of another kind says nothing of pages that are being converted.
TEST_F(CopierTest, Write_PatientAfterMissingMemory) {
  const ScratchPages gone(1);
  ::munmap(gone.data(), 4096);
  const ProtectedPage page;
  std::byte local[16]{};
  EXPECT_FALSE(move(Kind::kRead, gone.data(), local, 16));
  EXPECT_FALSE(move(Kind::kWrite, gone.data(), local, 16));
  std::thread helper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    page.release();
  });
  EXPECT_TRUE(move(Kind::kWrite, page.data(), local, 16));
  helper.join();
}

TEST(Copier, Submit_DeadProcess) {
  alignas(8) std::uint64_t value = 5;
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  const OwnMemory memory(child);
  const WakeEvent wake;
  Copier copier(memory.get(), {wake.get()});
  std::uint64_t local = 0;
  CopySegment segment{address_of(&value), reinterpret_cast<std::byte*>(&local), 8};
  CopyJob job;
  job.segments = {&segment, 1};
  const auto done = [&] {
    while (copier.take_done() == nullptr) std::this_thread::yield();
    return !job.failed;
  };
  copier.submit(job);
  EXPECT_TRUE(done());
  EXPECT_EQ(local, 5U);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  copier.submit(job);
  EXPECT_FALSE(done());
  job.kind = Kind::kWrite;
  copier.submit(job);
  EXPECT_FALSE(done());
}

// What the thread has taken it may finish; what it has not is dropped, and nobody waits for ever.
TEST(Copier, Destructor_WhileJobsAreQueued) {
  const OwnMemory own;
  const WakeEvent wake;
  std::vector<std::byte> program(1 << 16);
  std::vector<std::byte> local(program.size());
  CopySegment segment{address_of(program.data()), local.data(), 1 << 16};
  std::vector<CopyJob> jobs(500);
  Copier copier(own.get(), {wake.get()});
  for (CopyJob& job : jobs) {
    job.segments = {&segment, 1};
    copier.submit(job);
  }
}

// One order for all lanes, and each gets back its own.
TEST_F(CopierTest, TakeDone_EachLaneGetsItsOwnJobs) {
  const WakeEvent other_wake;
  Copier copier(own_.get(), {wake_.get(), other_wake.get()});
  alignas(8) std::uint64_t value = 0;
  std::vector<CopyJob> jobs(40);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    jobs[i].kind = Kind::kFetchAdd;
    jobs[i].address = address_of(&value);
    jobs[i].operand = 1;
    copier.submit(jobs[i], i % 2);
  }
  EXPECT_EQ(copier.outstanding_atomics(), jobs.size());
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    CopyJob* job = nullptr;
    while ((job = copier.take_done(i % 2)) == nullptr) std::this_thread::yield();
    EXPECT_EQ(job, &jobs[i]);
    EXPECT_EQ(job->original, i);
  }
  EXPECT_EQ(copier.outstanding(), 0U);
  EXPECT_EQ(copier.outstanding_atomics(), 0U);
  std::uint64_t count = 0;
  EXPECT_EQ(::read(other_wake.get(), &count, sizeof count), static_cast<ssize_t>(sizeof count));
}

// Both sides at full speed; of use under TSan above all.
TEST_F(CopierTest, Submit_BackAndForth) {
  const int rounds = stress_rounds(20'000);
  alignas(8) std::uint64_t value = 0;
  std::vector<CopyJob> jobs(64);
  std::deque<CopyJob*> idle;
  for (CopyJob& job : jobs) {
    job.kind = Kind::kFetchAdd;
    job.address = address_of(&value);
    job.operand = 1;
    idle.push_back(&job);
  }
  std::uint64_t expected = 0;
  int submitted = 0;
  while (expected < static_cast<std::uint64_t>(rounds)) {
    if (!idle.empty() && submitted < rounds) {
      copier_.submit(*idle.front());
      idle.pop_front();
      ++submitted;
    }
    if (CopyJob* job = copier_.take_done()) {
      ASSERT_EQ(job->original, expected++);
      idle.push_back(job);
    }
  }
  EXPECT_EQ(value, static_cast<std::uint64_t>(rounds));
}

}  // namespace
}  // namespace urdma::memory
