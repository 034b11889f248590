#include "comm/backends.hpp"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/agreed_error.hpp"
#include "comm/timeout.hpp"
#include "lockstep/observe/log.hpp"

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

/// What a program leaves open, the user may choose.
CommunicatorOptions with_backend(CommunicatorOptions options) {
  const char* const variable = std::getenv("LOCKSTEP_COMM");
  if (!options.backend.empty() || !variable || std::string_view(variable) == "auto") return options;
  options.backend = variable;
  try {
    if (*variable) find_by_name(options.backend);
  } catch (const InvalidArgument& error) {
    LOCKSTEP_THROW(InvalidArgument, "LOCKSTEP_COMM: ", error.what(), "; auto leaves the choice");
  }
  return options;
}

/// Backends that turned out to be unavailable, and why.
using PassedOver = std::vector<std::pair<const BackendFactory*, std::string>>;

/// Where a backend wants the buffers of a job on a device: those of a GPU can be staged on the
/// host.
Device buffers_for(const BackendFactory& factory, const Bootstrap& bootstrap, Device device) {
  return factory.refusal(bootstrap, device).empty() ? device : cpu;
}

std::string refusal_of(const BackendFactory& factory, const Bootstrap& bootstrap, Device device,
                       const PassedOver& passed_over) {
  const auto passed = std::ranges::find(passed_over, &factory, &PassedOver::value_type::first);
  return passed != passed_over.end()
             ? passed->second
             : factory.refusal(bootstrap, buffers_for(factory, bootstrap, device));
}

const BackendFactory& choose(const Bootstrap& bootstrap, Device device, const std::string& wanted,
                             const PassedOver& passed_over) {
  if (!wanted.empty()) {
    const BackendFactory& factory = find_by_name(wanted);
    const std::string refusal = refusal_of(factory, bootstrap, device, passed_over);
    LOCKSTEP_CHECK(refusal.empty(), Unsupported, "the communicator backend \"", wanted,
                   "\" cannot serve this job: ", refusal);
    return factory;
  }
  std::string refusals;
  for (const BackendFactory* factory : built_in()) {
    const std::string refusal = refusal_of(*factory, bootstrap, device, passed_over);
    if (refusal.empty()) return *factory;
    refusals.append("; ").append(factory->name).append(": ").append(refusal);
  }
  LOCKSTEP_THROW(Unsupported, "no communicator backend of this build serves ranks on ", device,
                 refusals);
}

// Ranks that chose differently would wait for each other in the making.
const BackendFactory& agree(Bootstrap& bootstrap, Device device, const std::string& wanted,
                            const PassedOver& passed_over) {
  const BackendFactory* chosen = nullptr;
  agree_on_errors(bootstrap, "communicator backend",
                  [&] { chosen = &choose(bootstrap, device, wanted, passed_over); });
  const auto all = bootstrap.all_gather_bytes(chosen->name, "name of the communicator backend");
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    LOCKSTEP_CHECK(all[rank] == all[0], Agreed<InvalidArgument>, "the communicator backend is ",
                   all[0], " on rank 0 but ", all[rank], " on rank ", rank,
                   "; it must be the same on every rank");
  return *chosen;
}

std::unique_ptr<CommunicatorBackend> make(const BackendFactory& factory, WorldPlan&& plan) {
  const Device device = plan.device;
  plan.device = buffers_for(factory, plan.bootstrap, device);
  const bool is_staged = plan.device != device;
  if (is_staged && plan.options.backend.empty() && plan.bootstrap.rank() == 0)
    LOCKSTEP_LOG(warning,
                 "there is no NCCL in this build: GPUs exchange their data through the host, over ",
                 factory.name);
  auto backend = factory.make(std::move(plan));
  return is_staged ? make_staged(device, std::move(backend)) : std::move(backend);
}

}  // namespace

void add_backend(const BackendFactory& factory) {
  const std::lock_guard lock(added().mutex);
  added().factories.push_back(&factory);
}

const BackendFactory& message_backend(const Bootstrap& bootstrap) {
  for (const BackendFactory* factory : built_in())
    if (factory->connect && factory->refusal(bootstrap, cpu).empty()) return *factory;
  LOCKSTEP_THROW(Unsupported, "this build has no way to send messages between the ranks");
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
                  [&] { complete = with_backend(with_timeout(options)); });
  for (PassedOver passed_over;;) {
    const BackendFactory& factory = agree(bootstrap, device, complete.backend, passed_over);
    try {
      GroupMembership membership(bootstrap.groups());
      return make_intrusive<Communicator>(
          make(factory, {bootstrap, device, complete, std::move(membership), comparison}));
    } catch (const BackendUnavailable& error) {
      if (complete.backend.empty() && bootstrap.rank() == 0)
        LOCKSTEP_LOG(warning, "the communicator backend \"", factory.name,
                     "\" is left out: ", error.what());
      passed_over.emplace_back(&factory, error.what());
    }
  }
}

}  // namespace lockstep::comm
