// The operations of protection, thread and parent domains.
// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "provider/ibv/protection_domain.hpp"

#include <cerrno>

#include "provider/ibv/objects.hpp"

namespace urdma::provider {

namespace {

constexpr std::uint32_t kKnownMask = std::uint32_t{IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS} |
                                     std::uint32_t{IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT};

int check_parent_domain(const ibv_parent_domain_init_attr& attributes) {
  if (attributes.pd == nullptr || (attributes.comp_mask & ~kKnownMask) != 0) return EINVAL;
  if (domain_of(attributes.pd).original != nullptr) return EINVAL;  // a parent of a parent
  const bool has_allocators = (attributes.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) != 0;
  return has_allocators && (attributes.alloc == nullptr || attributes.free == nullptr) ? EINVAL : 0;
}

void dealloc_parent_domain(ProtectionDomain& parent) {
  --parent.original->users;
  if (parent.thread != nullptr) --parent.thread->users;
  delete &parent;
}

}  // namespace

ibv_pd* alloc_pd(ibv_context* context) {
  std::unique_ptr<ProtectionDomain> pd(new (std::nothrow) ProtectionDomain{});
  if (pd == nullptr) return refuse(ENOMEM);
  abi::Handle reply{};
  const int error = session_of(context).requests().call(abi::MessageType::kAllocPd, abi::AllocPd{}, reply);
  if (error != 0) return refuse(error);
  pd->context = context;
  pd->handle = reply.handle;
  return pd.release();
}

int dealloc_pd(ibv_pd* ibv) {
  ProtectionDomain& pd = domain_of(ibv);
  if (pd.users != 0) return EBUSY;
  if (pd.original != nullptr) {
    dealloc_parent_domain(pd);
    return 0;
  }
  Session& session = session_of(pd.context);
  const int error = session.requests().call(abi::MessageType::kDeallocPd, abi::Handle{pd.handle, 0});
  if (const int result = destroyed(session, error); result != 0) return result;
  delete &pd;
  return 0;
}

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attributes) {
  if (attributes->comp_mask != 0) return refuse(EINVAL);
  auto* td = new (std::nothrow) ThreadDomain{};
  if (td == nullptr) return refuse(ENOMEM);
  td->context = context;
  return td;
}

int dealloc_td(ibv_td* td) {
  if (domain_of(td).users != 0) return EBUSY;
  delete &domain_of(td);
  return 0;
}

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attributes) {
  if (const int error = check_parent_domain(*attributes); error != 0) return refuse(error);
  auto* parent = new (std::nothrow) ProtectionDomain{};
  if (parent == nullptr) return refuse(ENOMEM);
  parent->context = context;
  parent->handle = attributes->pd->handle;
  parent->original = &domain_of(attributes->pd);
  ++parent->original->users;
  if (attributes->td != nullptr) {
    parent->thread = &domain_of(attributes->td);
    ++parent->thread->users;
  }
  if ((attributes->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) != 0) {
    parent->allocate = attributes->alloc;
    parent->release = attributes->free;
  }
  if ((attributes->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT) != 0)
    parent->allocator_context = attributes->pd_context;
  return parent;
}

}  // namespace urdma::provider
