#include <algorithm>
#include <map>
#include <set>

#include "autograd/held_memory.hpp"
#include "core/fault_list.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/nn/module.hpp"
#include "lockstep/tensor/compare.hpp"
#include "tensor/ownership.hpp"

namespace lockstep::nn {
namespace {

/// A tensor of the module, all its names, and the value that was found for it.
struct Slot {
  Tensor target;
  std::vector<std::string> names;
  Tensor value;
};

class Loading {
 public:
  void add_slot(const std::string& name, const Tensor& target) {
    const auto [place, is_new] = slot_of_.emplace(&target.impl(), slots_.size());
    if (is_new) slots_.push_back({target, {}, {}});
    slots_[place->second].names.push_back(name);
    slot_of_name_.emplace(name, place->second);
  }

  void offer(const std::string& name, const Tensor& value) {
    const auto place = slot_of_name_.find(name);
    if (place == slot_of_name_.end()) {
      report_.unexpected.push_back(name);
      return;
    }
    Slot& slot = slots_[place->second];
    check_fits(name, value, slot.target);
    if (slot.value.defined() && !equal(slot.value, value, true))
      faults_.add() << name << ": differs from the value given under another of its names";
    slot.value = value;
  }

  /// Copies all values. @throws InvalidArgument with every fault found, before changing anything.
  LoadReport finish(bool strict) {
    for (const Slot& slot : slots_)
      if (!slot.value.defined()) report_.missing.push_back(slot.names.front());
    if (strict) {
      for (const Slot& slot : slots_)
        if (!slot.value.defined() && !is_count(slot))
          faults_.add() << slot.names.front() << ": missing";
      for (const auto& name : report_.unexpected) faults_.add() << name << ": unexpected";
      tell_prefix();
    }
    for (const Slot& slot : slots_)
      if (slot.value.defined() && autograd::HeldMemory::has(slot.target))
        faults_.add()
            << slot.names.front()
            << ": holds its average, and would lose what is loaded; let the WeightAverage "
               "swap_out() first";
    LOCKSTEP_CHECK(faults_.is_empty(), InvalidArgument, "load_state_dict:", faults_.text());
    const NoGradGuard no_recording;
    keep_own_values();
    for (Slot& slot : slots_)
      if (slot.value.defined() && !is_same_memory(slot.value, slot.target))
        slot.target.copy_(slot.value);
    return std::move(report_);
  }

 private:
  void check_fits(const std::string& name, const Tensor& value, const Tensor& target) {
    if (!value.defined())
      faults_.add() << name << ": undefined";
    else if (value.shape() != target.shape())
      faults_.add() << name << ": shape " << value.shape() << ", expected " << target.shape();
    else if (value.dtype() != target.dtype())
      faults_.add() << name << ": dtype " << value.dtype() << ", expected " << target.dtype()
                    << " (convert with to(dtype))";
  }

  /// Files from before PyTorch 0.4.1 lack the counts of batch norms, which stay as they are there,
  /// too.
  static bool is_count(const Slot& slot) {
    return slot.target.dtype() == DType::i64 && slot.target.dim() == 0 &&
           slot.names.front().ends_with("num_batches_tracked");
  }

  /// Values that lie in the memory of targets, of a view or of another target, are copied first:
  /// what is loaded before them would change them.
  void keep_own_values() {
    std::set<const Storage*> memory;
    for (const Slot& slot : slots_) memory.insert(slot.target.impl().storage.get());
    for (Slot& slot : slots_)
      if (slot.value.defined() && !is_same_memory(slot.value, slot.target) &&
          memory.contains(slot.value.impl().storage.get()))
        slot.value = slot.value.clone();
  }

  /// Checkpoints of PyTorch's wrappers have one more name before all others ("module.").
  void tell_prefix() {
    if (report_.unexpected.empty()) return;
    const std::string prefix = report_.unexpected[0].substr(0, report_.unexpected[0].find('.') + 1);
    const auto fits_without = [&](const std::string& name) {
      return name.starts_with(prefix) && slot_of_name_.contains(name.substr(prefix.size()));
    };
    if (!prefix.empty() && std::ranges::all_of(report_.unexpected, fits_without))
      faults_.hint() << "\n  without \"" << prefix << "\", which a wrapper has put before them, "
                     << "the unexpected names are this module's: take it off";
  }

  std::vector<Slot> slots_;
  std::map<const TensorImpl*, std::size_t> slot_of_;
  std::map<std::string, std::size_t, std::less<>> slot_of_name_;
  LoadReport report_;
  lockstep::detail::FaultList faults_;
};

}  // namespace

NamedTensors Module::named_state() const {
  NamedTensors state;
  std::map<const TensorImpl*, bool> seen;
  visit("", [&](const std::string& name, const Entry& entry) {
    if (entry.persistent && seen.emplace(&entry.tensor.impl(), true).second)
      state.emplace_back(name, entry.tensor);
  });
  return state;
}

NamedTensors Module::state_dict() const {
  NamedTensors state = named_state();
  for (auto& [name, tensor] : state) tensor = tensor.detach();
  return state;
}

LoadReport Module::load_state_dict(const NamedTensors& state, bool strict) {
  Loading loading;
  visit("", [&](const std::string& name, const Entry& entry) {
    if (entry.persistent) loading.add_slot(name, entry.tensor);
  });
  for (const auto& [name, value] : state) loading.offer(name, value);
  return loading.finish(strict);
}

}  // namespace lockstep::nn
