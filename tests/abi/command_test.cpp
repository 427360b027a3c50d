// Requests on a uverbs descriptor: by write(2), by ioctl(2), and through libibverbs' usual answers.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <poll.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

namespace urdma::test {
namespace {

class Commands : public testing::Test {
 protected:
  void SetUp() override {
    fd_ = ::open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC);
    ASSERT_GE(fd_, 0);
  }
  void TearDown() override { ::close(fd_); }

  int fd_ = -1;
};

struct CreateChannel {
  ib_uverbs_cmd_hdr header;
  ib_uverbs_create_comp_channel body;
};

CreateChannel create_channel(ib_uverbs_create_comp_channel_resp& response) {
  CreateChannel command{};
  command.header = {IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, sizeof(command) / 4, sizeof(response) / 4};
  command.body.response = reinterpret_cast<std::uintptr_t>(&response);
  return command;
}

// A request with as many attributes as are added.
class Ioctl {
 public:
  Ioctl(std::uint16_t object, std::uint16_t method) {
    header()->object_id = object;
    header()->method_id = method;
  }
  Ioctl& add(std::uint16_t id, std::uint16_t length, std::uint64_t data) {
    ib_uverbs_attr& attribute = header()->attrs[header()->num_attrs++];
    attribute.attr_id = id;
    attribute.len = length;
    attribute.flags = UVERBS_ATTR_F_MANDATORY;
    attribute.data = data;
    return *this;
  }
  Ioctl& add_pointer(std::uint16_t id, std::size_t length, void* where) {
    return add(id, static_cast<std::uint16_t>(length), reinterpret_cast<std::uintptr_t>(where));
  }
  int run(int fd) {
    header()->length = static_cast<std::uint16_t>(sizeof(ib_uverbs_ioctl_hdr) +
                                                  header()->num_attrs * sizeof(ib_uverbs_attr));
    return ::ioctl(fd, RDMA_VERBS_IOCTL, header());
  }
  ib_uverbs_ioctl_hdr* header() { return reinterpret_cast<ib_uverbs_ioctl_hdr*>(bytes_.data()); }

 private:
  alignas(ib_uverbs_ioctl_hdr)
      std::array<char, sizeof(ib_uverbs_ioctl_hdr) + 8 * sizeof(ib_uverbs_attr)> bytes_{};
};

int query_gid(int fd, std::uint32_t port, std::uint32_t index, std::uint32_t flags,
              ib_uverbs_gid_entry& entry) {
  return Ioctl(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY)
      .add(UVERBS_ATTR_QUERY_GID_ENTRY_PORT, 4, port)
      .add(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, 4, index)
      .add(UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, 4, flags)
      .add_pointer(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, sizeof(entry), &entry)
      .run(fd);
}

int query_table(int fd, std::size_t entry_bytes, std::vector<char>& room, std::uint64_t& count) {
  return Ioctl(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE)
      .add(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, 8, entry_bytes)
      .add(UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, 4, 0)
      .add_pointer(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, room.size(), room.data())
      .add_pointer(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, sizeof(count), &count)
      .run(fd);
}

TEST_F(Commands, Write_CreatesACompletionChannel) {
  ib_uverbs_create_comp_channel_resp response{};
  const CreateChannel command = create_channel(response);
  errno = 77;
  ASSERT_EQ(::write(fd_, &command, sizeof(command)), ssize_t{sizeof(command)});
  EXPECT_EQ(errno, 77);
  const int channel = static_cast<int>(response.fd);
  EXPECT_EQ(::fcntl(channel, F_GETFD), FD_CLOEXEC);
  pollfd waiting{channel, POLLIN, 0};
  EXPECT_EQ(::poll(&waiting, 1, 0), 0) << "an empty channel is not at its end";

  // As the daemon does: opened again, for writing, without blocking.
  const std::string path = "/proc/self/fd/" + std::to_string(channel);
  const int writer = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(writer, 0);
  const std::uint64_t event = 0x1122334455667788;
  ASSERT_EQ(::write(writer, &event, sizeof(event)), ssize_t{sizeof(event)});
  ::close(writer);
  std::uint64_t received = 0;
  ASSERT_EQ(::read(channel, &received, sizeof(received)), ssize_t{sizeof(received)});
  EXPECT_EQ(received, event);
  waiting.revents = 0;
  EXPECT_EQ(::poll(&waiting, 1, 0), 0);
  ::close(channel);
}

TEST_F(Commands, Writev_CreatesOneToo) {
  ib_uverbs_create_comp_channel_resp response{};
  CreateChannel command = create_channel(response);
  const iovec part{&command, sizeof(command)};
  ASSERT_EQ(::writev(fd_, &part, 1), ssize_t{sizeof(command)});
  EXPECT_EQ(::close(static_cast<int>(response.fd)), 0);
}

TEST_F(Commands, Write_BadAnswersAreRefused) {
  ib_uverbs_create_comp_channel_resp response{};
  CreateChannel command = create_channel(response);
  command.body.response = 0;
  EXPECT_EQ(::write(fd_, &command, sizeof(command)), -1);
  EXPECT_EQ(errno, EFAULT);
  command = create_channel(response);
  command.header.out_words = 0;
  EXPECT_EQ(::write(fd_, &command, sizeof(command)), -1);
  EXPECT_EQ(errno, ENOSPC);
}

TEST_F(Commands, Write_OtherCommandsAreNotSupported) {
  std::uint32_t query_port[8] = {IB_USER_VERBS_CMD_QUERY_PORT, sizeof(query_port) / 4};
  EXPECT_EQ(::write(fd_, query_port, sizeof(query_port)), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
  std::uint32_t extended[8] = {IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_CMD_QUERY_DEVICE, 1};
  EXPECT_EQ(::write(fd_, extended, sizeof(extended)), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(Commands, Ioctl_GidEntry) {
  ib_uverbs_gid_entry entry{};
  ASSERT_EQ(query_gid(fd_, 1, 0, 0, entry), 0);
  const std::uint8_t expected[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 127, 0, 0, 1};
  EXPECT_EQ(std::memcmp(entry.gid, expected, sizeof(expected)), 0);
  EXPECT_EQ(entry.port_num, 1U);
  EXPECT_EQ(entry.gid_type, std::uint32_t{IB_UVERBS_GID_TYPE_ROCE_V2});
  EXPECT_EQ(entry.netdev_ifindex, ::if_nametoindex("lo"));
  ASSERT_EQ(query_gid(fd_, 1, 5, 0, entry), 0);
  EXPECT_EQ(entry.gid_index, 5U);
  EXPECT_EQ(entry.netdev_ifindex, 0U);
}

TEST_F(Commands, Ioctl_GidEntryErrors) {
  ib_uverbs_gid_entry entry{};
  EXPECT_EQ(query_gid(fd_, 1, 1, 0, entry), -1);
  EXPECT_EQ(errno, ENODATA);
  EXPECT_EQ(query_gid(fd_, 1, 8, 0, entry), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(query_gid(fd_, 2, 0, 0, entry), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(query_gid(fd_, 1, 0, 1, entry), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Commands, Ioctl_GidTable) {
  std::vector<char> room(4 * sizeof(ib_uverbs_gid_entry), 'x');
  std::uint64_t count = 0;
  ASSERT_EQ(query_table(fd_, sizeof(ib_uverbs_gid_entry), room, count), 0);
  ASSERT_EQ(count, 2U);
  ib_uverbs_gid_entry second{};
  std::memcpy(&second, room.data() + sizeof(second), sizeof(second));
  EXPECT_EQ(second.gid_index, 5U);
  EXPECT_EQ(reinterpret_cast<const std::uint8_t*>(second.gid)[0], 0xFE);
  EXPECT_EQ(room[2 * sizeof(second)], 'x') << "what is not an entry is not touched";
}

TEST_F(Commands, Ioctl_GidTableOfOtherSizes) {
  constexpr std::size_t kLonger = sizeof(ib_uverbs_gid_entry) + 8;
  std::vector<char> room(2 * kLonger, 'x');
  std::uint64_t count = 0;
  ASSERT_EQ(query_table(fd_, kLonger, room, count), 0);
  EXPECT_EQ(count, 2U);
  EXPECT_EQ(room[sizeof(ib_uverbs_gid_entry)], '\0');
  std::vector<char> small(sizeof(ib_uverbs_gid_entry));
  EXPECT_EQ(query_table(fd_, sizeof(ib_uverbs_gid_entry), small, count), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(query_table(fd_, 0, room, count), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Commands, Ioctl_AsyncEventChannel) {
  Ioctl request(UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC);
  request.add(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, 0, 0);
  ASSERT_EQ(request.run(fd_), 0);
  const int channel = static_cast<int>(request.header()->attrs[0].data_s64);
  struct stat status {};
  ASSERT_EQ(::fstat(channel, &status), 0);
  EXPECT_TRUE(S_ISFIFO(status.st_mode));
  ::close(channel);
}

TEST_F(Commands, Ioctl_OthersAreNotSupported) {
  EXPECT_EQ(Ioctl(UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY).run(fd_), -1);
  EXPECT_EQ(errno, EPROTONOSUPPORT);
  EXPECT_EQ(Ioctl(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE).run(fd_), -1);
  EXPECT_EQ(errno, EPROTONOSUPPORT);
  EXPECT_EQ(::ioctl(fd_, RDMA_VERBS_IOCTL, nullptr), -1);
  EXPECT_EQ(errno, EFAULT);
}

TEST(Netlink, Socket_RdmaIsNotThere) {
  EXPECT_EQ(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA), -1);
  EXPECT_EQ(errno, EPROTONOSUPPORT);
  const int route = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  EXPECT_GE(route, 0);
  ::close(route);
}

}  // namespace
}  // namespace urdma::test
