#include "engine/device_variables.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "engine/host.hpp"
#include "memory/address_space.hpp"
#include "memory/device_side.hpp"
#include "memory/layout.hpp"

namespace simgpu {
namespace {

struct DeviceVariable {
  VariableDeclaration declared;
  std::array<std::byte*, Layout::max_devices> on{};  ///< null: not there yet

  bool is_meant_by(const void* symbol) const {
    return symbol == declared.copy ||
           (symbol && std::find(on.begin(), on.end(), symbol) != on.end());
  }
};

/// Never destroyed: what still runs at exit uses it.
struct Registry {
  std::mutex mutex;
  std::vector<DeviceVariable> variables;
  /// The references of each program and library that has any.
  std::vector<std::pair<void**, void**>> references;
  int referred = -1;  ///< the device whose variables they mean
};

Registry& registry() {
  static Registry* const all = new Registry;
  return *all;
}

DeviceVariable* find(Registry& all, const void* symbol) {
  const auto found =
      std::find_if(all.variables.begin(), all.variables.end(),
                   [&](const DeviceVariable& each) { return each.is_meant_by(symbol); });
  return found == all.variables.end() ? nullptr : &*found;
}

void fill(std::byte* data, const VariableDeclaration& declared) {
  const DeviceSideScope device_side;
  std::memcpy(data, declared.copy, declared.bytes);
  if (declared.kind == VariableKind::device || declared.is_initialized)
    mark_initialized(data, declared.bytes);
}

std::byte* place(DeviceVariable& variable, int device) {
  std::byte*& data = variable.on[static_cast<std::size_t>(device)];
  if (data) return data;
  void* made = nullptr;
  const VariableDeclaration& declared = variable.declared;
  if (allocate(&made, declared.bytes, device, MemoryKind::device) != cudaSuccess) return nullptr;
  data = static_cast<std::byte*>(made);
  forget_accesses(data, declared.bytes);
  const bool is_constant = declared.kind == VariableKind::constant;
  name_memory(data, declared.bytes,
              std::string(is_constant ? "__constant__ " : "__device__ ") + declared.name);
  fill(data, declared);
  return data;
}

}  // namespace

void add_variable(const VariableDeclaration& variable, void** begin, void** end) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (!find(all, variable.copy)) all.variables.push_back({variable});
  const std::pair references{begin, end};
  if (std::find(all.references.begin(), all.references.end(), references) == all.references.end())
    all.references.push_back(references);
}

std::vector<PlacedVariable> variables_on(int device) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::vector<PlacedVariable> placed;
  for (DeviceVariable& each : all.variables)
    if (std::byte* const data = place(each, device))
      placed.push_back({data, each.declared.bytes, each.declared.kind});
  return placed;
}

std::optional<std::size_t> bytes_of_variable(const void* symbol) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const DeviceVariable* const variable = find(all, symbol);
  return variable ? std::optional(variable->declared.bytes) : std::nullopt;
}

std::byte* find_variable(const void* symbol, int device) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  DeviceVariable* const variable = find(all, symbol);
  return variable ? place(*variable, device) : nullptr;
}

void refer_to_variables_of(int device) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (all.referred == device) return;
  all.referred = device;
  for (const auto& [begin, end] : all.references)
    for (void** reference = begin; reference != end; ++reference)
      if (DeviceVariable* const variable = find(all, *reference))
        if (std::byte* const data = place(*variable, device)) *reference = data;
}

void forget_variables(int device) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.referred = -1;
  for (const auto& [begin, end] : all.references)
    for (void** reference = begin; reference != end; ++reference)
      if (const DeviceVariable* const variable = find(all, *reference))
        *reference = const_cast<void*>(variable->declared.copy);
  for (DeviceVariable& each : all.variables) each.on[static_cast<std::size_t>(device)] = nullptr;
}

}  // namespace simgpu
