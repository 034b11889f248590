#pragma once

#include <iterator>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/fault_list.hpp"
#include "lockstep/tensor/named_tensors.hpp"

/// @file
/// Reading a saved optimizer state key by key.

namespace lockstep::optim {

/// Gives out the tensors of a state by name, and collects everything that is wrong with it.
class StateReader {
 public:
  /// @param of what the state is.
  explicit StateReader(NamedTensors state, std::string of = "optimizer state")
      : given_(std::move_iterator(state.begin()), std::move_iterator(state.end())),
        of_(std::move(of)) {}

  bool has(const std::string& name) const { return given_.contains(name); }
  /// It counts as taken, if it is there.
  void drop(const std::string& name) { given_.erase(name); }
  /// The tensor of a name; undefined, with a fault, if it is missing or of another shape or dtype.
  Tensor take(const std::string& name, const Shape& shape, DType dtype) {
    auto node = given_.extract(name);
    Tensor value = node.empty() ? Tensor() : std::move(node.mapped());
    if (value.defined() && value.shape() == shape && value.dtype() == dtype) return value;
    auto& out = fault() << name;
    if (!value.defined())
      out << ": missing";
    else
      out << ": shape " << value.shape() << ", " << value.dtype() << "; expected " << shape << ", "
          << dtype;
    return {};
  }
  /// The same where it may be missing, and comes in any floating or integer dtype.
  Tensor take_any(const std::string& name, const Shape& shape) {
    const auto node = given_.extract(name);
    if (node.empty() || !node.mapped().defined()) return {};
    const Tensor value = node.mapped();
    if (value.shape() == shape && value.dtype() != DType::boolean) return value;
    fault() << name << ": shape " << value.shape() << ", " << value.dtype() << "; expected "
            << shape << ", numbers";
    return {};
  }
  /// What names that begin with a prefix go on with, where that has no dot: a parameter's may begin
  /// so, too. They count as taken.
  std::vector<std::string> take_names(std::string_view prefix) {
    std::vector<std::string> rests;
    auto next = given_.lower_bound(std::string(prefix));
    while (next != given_.end() && next->first.starts_with(prefix)) {
      std::string rest = next->first.substr(prefix.size());
      if (rest.find('.') != rest.npos) {
        ++next;
        continue;
      }
      rests.push_back(std::move(rest));
      next = given_.erase(next);
    }
    return rests;
  }
  /// The number of a name; `otherwise`, with a fault, if it is missing.
  double number(const std::string& name, DType dtype, double otherwise) {
    const Tensor value = take(name, {}, dtype);
    return value.defined() ? value.item() : otherwise;
  }
  /// Allows to overwrite a state that is there, unless somebody else has it, too.
  void may_overwrite(const Tensor& state) {
    if (state.use_count() == 1) overwritable_.insert(&state.impl());  // 0: there is none
  }
  bool overwrites(const Tensor& state) const { return overwritable_.contains(&state.impl()); }
  /// Has a value copied into such a state by `copy`.
  void copy_later(const Tensor& state, Tensor value) {
    overwritable_.erase(&state.impl());
    copies_.emplace_back(state, std::move(value));
  }
  /// To be called once all is known to fit.
  void copy() {
    for (auto& [state, value] : std::exchange(copies_, {})) state.copy_(value);
  }

  /// A line of the list of faults, for the caller to fill.
  std::ostream& fault() { return faults_.add(); }

  /// The first fault, keys that nobody took behind the others; empty if there is none.
  std::string first_fault() const {
    if (!faults_.is_empty()) return faults_.first();
    return given_.empty() ? "" : given_.begin()->first + ": unexpected";
  }

  /// @throws InvalidArgument with the first faults, keys that nobody took among them.
  void finish() {
    for (const auto& [name, tensor] : given_) fault() << name << ": unexpected";
    LOCKSTEP_CHECK(faults_.is_empty(), InvalidArgument, of_, ":", faults_.text());
  }

 private:
  std::map<std::string, Tensor> given_;
  std::set<const TensorImpl*> overwritable_;
  std::vector<std::pair<Tensor, Tensor>> copies_;
  std::string of_;
  detail::FaultList faults_;
};

}  // namespace lockstep::optim
