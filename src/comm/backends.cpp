#include "comm/backends.hpp"

#include <mutex>
#include <utility>
#include <vector>

#include "comm/agreed_error.hpp"
#include "comm/timeout.hpp"

namespace lockstep::comm {

// The list is CMake's (cmake/LockstepLibrary.cmake): one line for each folder.
#define LOCKSTEP_COMMUNICATOR_BACKEND(name) const BackendFactory& name##_backend();
#include "comm/backend_list.def"
#undef LOCKSTEP_COMMUNICATOR_BACKEND

namespace {

// In the order of preference.
const std::vector<const BackendFactory*>& built_in() {
#define LOCKSTEP_COMMUNICATOR_BACKEND(name) &name##_backend(),
  static const std::vector<const BackendFactory*> factories{
#include "comm/backend_list.def"
  };
#undef LOCKSTEP_COMMUNICATOR_BACKEND
  return factories;
}

struct Added {
  std::mutex mutex;
  std::vector<const BackendFactory*> factories;
};

Added& added() {
  static Added added;
  return added;
}

std::vector<const BackendFactory*> all_factories() {
  std::vector<const BackendFactory*> all = built_in();
  const std::lock_guard lock(added().mutex);
  all.insert(all.end(), added().factories.begin(), added().factories.end());
  return all;
}

const BackendFactory& find_by_name(const std::string& name) {
  std::string known;
  for (const BackendFactory* factory : all_factories()) {
    if (factory->name == name) return *factory;
    known.append(known.empty() ? "" : ", ").append(factory->name);
  }
  LOCKSTEP_THROW(InvalidArgument, "there is no communicator backend \"", name,
                 "\" in this build, which has ", known);
}

const BackendFactory& choose(const Bootstrap& bootstrap, Device device, const std::string& wanted) {
  if (!wanted.empty()) {
    const BackendFactory& factory = find_by_name(wanted);
    const std::string refusal = factory.refusal(bootstrap, device);
    LOCKSTEP_CHECK(refusal.empty(), Unsupported, "the communicator backend \"", wanted,
                   "\" cannot serve this job: ", refusal);
    return factory;
  }
  std::string refusals;
  for (const BackendFactory* factory : built_in()) {
    const std::string refusal = factory->refusal(bootstrap, device);
    if (refusal.empty()) return *factory;
    refusals.append("; ").append(factory->name).append(": ").append(refusal);
  }
  LOCKSTEP_THROW(Unsupported, "no communicator backend of this build serves ranks on ", device,
                 device.is_cuda() ? ", which takes NCCL" : "", refusals);
}

// Ranks that chose differently would wait for each other in the making.
const BackendFactory& agree(Bootstrap& bootstrap, Device device, const std::string& wanted) {
  const BackendFactory* chosen = nullptr;
  agree_on_errors(bootstrap, "communicator backend",
                  [&] { chosen = &choose(bootstrap, device, wanted); });
  const auto all = bootstrap.all_gather_bytes(chosen->name, "name of the communicator backend");
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    LOCKSTEP_CHECK(all[rank] == all[0], Agreed<InvalidArgument>, "the communicator backend is ",
                   all[0], " on rank 0 but ", all[rank], " on rank ", rank,
                   "; it must be the same on every rank");
  return *chosen;
}

}  // namespace

void add_backend(const BackendFactory& factory) {
  const std::lock_guard lock(added().mutex);
  added().factories.push_back(&factory);
}

CommunicatorPtr make_communicator(Bootstrap& bootstrap, Device device,
                                  const CommunicatorOptions& options) {
  return make_communicator(bootstrap, device, options, nullptr);
}

CommunicatorPtr make_communicator(Bootstrap& bootstrap, Device device,
                                  const CommunicatorOptions& options,
                                  const ComparisonPtr& comparison) {
  CommunicatorOptions complete;
  agree_on_errors(bootstrap, "options of the communicator",
                  [&] { complete = with_timeout(options); });
  const BackendFactory& factory = agree(bootstrap, device, options.backend);
  GroupMembership membership(bootstrap.groups());
  return make_intrusive<Communicator>(
      factory.make({bootstrap, device, complete, std::move(membership), comparison}));
}

}  // namespace lockstep::comm
