// What libibverbs loads: registration, the match with a device in sysfs, opening and closing a context.
//
// No exception leaves this directory's functions: allocation failures end in ENOMEM.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <dlfcn.h>
#include <rdma/ib_user_verbs.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <span>
#include <type_traits>

#include "provider/control/event_pipe.hpp"
#include "provider/ibv/objects.hpp"
#include "urdma/abi/stub.hpp"
#include "urdma/base/verbs.hpp"

namespace urdma::provider {

namespace {

// libibverbs' number for drivers that the kernel has no number for.
constexpr std::uint32_t kUnknownDriver = 0;
constexpr const char* kHcaType = "urdma";

// The daemon is gone: tells the program, and wakes every thread that waits for a completion.
void on_daemon_gone(Device& device, int async_fd) {
  const ib_uverbs_async_event_desc fatal{0, static_cast<std::uint32_t>(AsyncEvent::kDeviceFatal), 0};
  write_event(async_fd, std::as_bytes(std::span(&fatal, 1)));
  const std::lock_guard lock(device.cqs_mutex);
  for (CompletionQueue* cq : device.cqs) cq->wake_readers();
}

void free_context(ibv_context* context) {
  Device* device = &device_of(context);
  auto* verbs = reinterpret_cast<Context*>(reinterpret_cast<std::uintptr_t>(context) -
                                           offsetof(verbs_context, context));
  delete device;  // ends the service thread's use of the context before its descriptors are closed
  abi34::verbs_uninit_context(&verbs->verbs);
  std::free(verbs);
}

// `Function` as libibverbs, which is C, may call it: what it throws becomes an errno.
template <auto Function>
struct Guarded;
template <typename Result, typename... Arguments, Result (*Function)(Arguments...)>
struct Guarded<Function> {
  static Result call(Arguments... arguments) {
    try {
      return Function(arguments...);
    } catch (const std::exception&) {  // std::bad_alloc, or a lock that the system refuses
      errno = ENOMEM;
      if constexpr (std::is_pointer_v<Result>)
        return nullptr;
      else if constexpr (!std::is_void_v<Result>)
        return ENOMEM;
    }
  }
};

constexpr abi34::verbs_context_ops make_operations() {
  abi34::verbs_context_ops operations{};
  operations.free_context = free_context;
  operations.query_device_ex = Guarded<query_device_ex>::call;
  operations.query_port = Guarded<query_port>::call;
  operations.alloc_pd = Guarded<alloc_pd>::call;
  operations.dealloc_pd = Guarded<dealloc_pd>::call;
  operations.alloc_td = Guarded<alloc_td>::call;
  operations.dealloc_td = dealloc_td;
  operations.alloc_parent_domain = Guarded<alloc_parent_domain>::call;
  operations.query_rt_values = query_rt_values;
  operations.query_qp_data_in_order = query_qp_data_in_order;
  operations.query_ece = query_ece;
  operations.set_ece = set_ece;
  operations.alloc_dm = Guarded<alloc_dm>::call;
  operations.free_dm = Guarded<free_dm>::call;
  operations.reg_dm_mr = Guarded<reg_dm_mr>::call;
  operations.import_dm = Guarded<import_dm>::call;
  operations.unimport_dm = Guarded<unimport_dm>::call;
  operations.import_pd = Guarded<import_pd>::call;
  operations.unimport_pd = Guarded<unimport_pd>::call;
  operations.import_mr = Guarded<import_mr>::call;
  operations.unimport_mr = Guarded<unimport_mr>::call;
  operations.async_event = on_async_event;
  operations.reg_mr = Guarded<reg_mr>::call;
  operations.dereg_mr = Guarded<dereg_mr>::call;
  operations.rereg_mr = Guarded<rereg_mr>::call;
  operations.alloc_null_mr = Guarded<alloc_null_mr>::call;
  operations.advise_mr = Guarded<advise_mr>::call;
  operations.alloc_mw = Guarded<alloc_mw>::call;
  operations.dealloc_mw = Guarded<dealloc_mw>::call;
  operations.bind_mw = bind_mw;
  operations.create_cq = Guarded<create_cq>::call;
  operations.create_cq_ex = Guarded<create_cq_ex>::call;
  operations.resize_cq = Guarded<resize_cq>::call;
  operations.destroy_cq = Guarded<destroy_cq>::call;
  operations.poll_cq = poll_cq;
  operations.req_notify_cq = req_notify_cq;
  operations.cq_event = on_cq_event;
  operations.create_ah = Guarded<create_ah>::call;
  operations.destroy_ah = Guarded<destroy_ah>::call;
  operations.attach_mcast = Guarded<attach_mcast>::call;
  operations.detach_mcast = Guarded<detach_mcast>::call;
  operations.create_qp = Guarded<create_qp>::call;
  operations.create_qp_ex = Guarded<create_qp_ex>::call;
  operations.modify_qp = Guarded<modify_qp>::call;
  operations.query_qp = Guarded<query_qp>::call;
  operations.destroy_qp = Guarded<destroy_qp>::call;
  operations.create_srq = Guarded<create_srq>::call;
  operations.create_srq_ex = Guarded<create_srq_ex>::call;
  operations.modify_srq = Guarded<modify_srq>::call;
  operations.query_srq = Guarded<query_srq>::call;
  operations.destroy_srq = Guarded<destroy_srq>::call;
  operations.post_srq_recv = post_srq_recv;
  operations.get_srq_num = get_srq_num;
  operations.open_xrcd = Guarded<open_xrcd>::call;
  operations.open_qp = Guarded<open_qp>::call;
  operations.close_xrcd = Guarded<close_xrcd>::call;
  operations.post_send = post_send;
  operations.post_recv = post_recv;
  return operations;
}

// Null, with a sentence for the person and errno set, when the daemon cannot be reached.
std::unique_ptr<Device> open_device(int identity) {
  auto device = std::make_unique<Device>();
  auto session = Session::open(identity);
  if (!session) {
    std::fprintf(stderr, "urdma: %s\n", session.error().message.c_str());
    return refuse(session.error().code);
  }
  device->session = std::move(*session);
  return device;
}

// Both ways to a context: by opening the device, and by a descriptor of it that somebody else has opened.
verbs_context* make_context(ibv_device* ibv_device, int cmd_fd) {
  static constexpr abi34::verbs_context_ops kOperations = make_operations();
  auto* context = static_cast<Context*>(
      abi34::_verbs_init_and_alloc_context(ibv_device, cmd_fd, sizeof(Context), nullptr, kUnknownDriver));
  if (context == nullptr) return nullptr;
  int error = ENOMEM;
  try {
    if (std::unique_ptr<Device> device = open_device(cmd_fd)) {
      context->device = device.release();
      context->verbs.context.async_fd = context->device->session->take_async_fd();
      context->verbs.context.num_comp_vectors = 1;
      context->device->session->start(
          [context] { on_daemon_gone(*context->device, context->verbs.context.async_fd); });
      abi34::verbs_set_ops(&context->verbs, &kOperations);
      return &context->verbs;
    }
    error = errno;
  } catch (const std::exception&) {
  }
  abi34::verbs_uninit_context(&context->verbs);
  std::free(context);
  errno = error;
  return nullptr;
}

verbs_context* alloc_context(ibv_device* device, int cmd_fd, void*) { return make_context(device, cmd_fd); }

verbs_context* import_context(ibv_device* device, int cmd_fd) {
  verbs_context* context = make_context(device, cmd_fd);
  if (context == nullptr) return nullptr;
  // libibverbs asks the kernel next for a channel of asynchronous events: it is to be the session's.
  void* offer = ::dlsym(RTLD_DEFAULT, abi::kOfferEventChannel);
  if (offer != nullptr) reinterpret_cast<abi::OfferEventChannel>(offer)(context->context.async_fd);
  return context;
}

bool match_device(abi34::verbs_sysfs_dev* device) {
  char type[64];
  const int length = abi34::ibv_read_ibdev_sysfs_file(type, sizeof(type), device, "hca_type");
  return length > 0 && std::strncmp(type, kHcaType, std::strlen(kHcaType)) == 0;
}

abi34::verbs_device* alloc_device(abi34::verbs_sysfs_dev*) {
  return static_cast<abi34::verbs_device*>(std::calloc(1, sizeof(abi34::verbs_device)));
}

void uninit_device(abi34::verbs_device* device) { std::free(device); }

// Any abi_version of the device will do: the daemon and the provider compare theirs in the Welcome.
constexpr abi34::verbs_device_ops make_driver() {
  abi34::verbs_device_ops driver{};
  driver.name = "urdma";
  driver.match_min_abi_version = 0;
  driver.match_max_abi_version = UINT32_MAX;
  driver.match_device = match_device;
  driver.alloc_context = alloc_context;
  driver.import_context = import_context;
  driver.alloc_device = alloc_device;
  driver.uninit_device = uninit_device;
  return driver;
}

[[gnu::constructor]] void register_driver() {
  static constexpr abi34::verbs_device_ops driver = make_driver();
  abi34::verbs_register_driver_34(&driver);
}

}  // namespace
}  // namespace urdma::provider
