#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/autograd/place.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/intrusive_ptr.hpp"
#include "lockstep/tensor/named_tensors.hpp"

/// @file
/// The base of layers and models: a tree of named parameters, buffers and children.

namespace lockstep::nn {

/// What `Module::load_state_dict` found beside the keys it loaded.
struct LoadReport {
  std::vector<std::string> missing;     ///< keys of the module that the state lacks
  std::vector<std::string> unexpected;  ///< keys of the state that the module lacks
};

class Module;

/// Is told of a module that is called, and of tensors: those among the arguments or results, also
/// in vectors, pairs and tuples.
using CallHook = std::function<void(Module& module, std::span<const Tensor> tensors)>;

/// What runs around the calls of a module.
struct CallHooks {
  CallHook before = {};  ///< gets the arguments
  CallHook after = {};   ///< gets the results
  /// Gets arguments and result, and makes what the call gives instead of a result that is one
  /// tensor, such as the same with an adapter's share (nn/lora.hpp). A call that gives anything
  /// else throws InvalidArgument.
  std::function<Tensor(Module& module, std::span<const Tensor> arguments, const Tensor& result)>
      replace = {};
  /// Runs first, and sees no values: a module may go round it where an op of its own does what
  /// several layers would.
  std::function<void()> begin = {};
};

/// Base of everything with parameters. A module is one class; its members register themselves, one
/// line each (docs/adr):
///
///     struct Net : nn::Module {
///       nn::Child<nn::Linear> hidden{this, "hidden", 784, 128};
///       nn::Child<nn::Linear> output{this, "output", 128, 10};
///       nn::Parameter scale{this, "scale", ones({10})};
///       Tensor forward(const Tensor& x) { return output(relu(hidden(x))) * scale; }
///     };
///     auto net = nn::make<Net>();
///     Tensor y = net(x);
///
/// Modules are neither copied nor moved, because members know their owner; handles (ModulePtr) are
/// shared, and own the module: so `make` and `Child` create modules, and nothing else can. A module
/// belongs to one thread at a time.
///
/// Handles run `forward` when they are called. Errors that leave such a call say in which layer
/// they arose ("in blocks.3.fc1: ..."), and so do errors in the backward of what it recorded.
class Module : public RefCounted {
 public:
  /// @name Contents
  /// Names are paths: "layer1.0.weight". Own entries come first, then the children's, in the order
  /// of registration; a tensor registered more than once appears under its first name only.
  /// @{

  /// All parameters.
  std::vector<Tensor> parameters() const;
  /// All parameters with their names, behind a prefix such as "generator" where one is given.
  NamedTensors named_parameters(const std::string& prefix = {}) const;
  /// All buffers with their names.
  NamedTensors named_buffers() const;
  /// The direct children with their names.
  const std::vector<std::pair<std::string, IntrusivePtr<Module>>>& children() const noexcept {
    return children_;
  }
  /// This module (under the empty name) and all below it.
  std::vector<std::pair<std::string, Module*>> named_modules();
  /// This module's name below the root, such as "blocks.3.fc1"; empty for a root. A module with
  /// several owners goes by the first that is alive.
  std::string path() const;
  /// The same for errors in backward.
  const autograd::Place& place() const noexcept { return place_; }
  /// Further names of tensors registered more than once: (name, first name).
  std::vector<std::pair<std::string, std::string>> aliases() const;
  /// Number of elements of all parameters.
  std::int64_t parameter_count() const;
  /// @}

  /// @name Mode
  /// @{

  /// Switches all modules to training (dropout draws, batch norm uses the batch), or back.
  void train(bool training = true);
  /// Switches all modules to evaluation.
  void eval() { train(false); }
  /// True in training mode, which is how modules start.
  bool is_training() const noexcept { return training_; }
  /// @}

  /// @name Changing parameters
  /// `to` keeps the parameters' Tensor objects and hooks, so optimizers stay valid, and takes
  /// gradients along. Call it before wrapping the module for data-parallel training; later it is
  /// refused, and nothing changes.
  /// @{

  /// Moves all parameters and buffers to a device.
  void to(Device device);
  /// Converts all parameters. Floating buffers follow, but not below f32: the small steps of
  /// running statistics would be lost.
  void to(DType dtype);
  /// Moves and converts.
  void to(Device device, DType dtype);
  /// Clears all gradients, or with `set_to_none = false` fills those present with zeros.
  void zero_grad(bool set_to_none = true);
  /// Makes all parameters require a gradient, or not.
  void requires_grad_(bool required = true);
  /// Calls a function with every module, children before their parents.
  void apply(FunctionRef<void(Module&)> function);
  /// @}

  /// @name State
  /// @{

  /// All parameters and persistent buffers, detached and sharing memory, under their first names.
  NamedTensors state_dict() const;
  /// The same parameters and buffers themselves: their memory is not looked at, which those that
  /// ranks share out (zero_stage 3) do not have.
  NamedTensors named_state() const;
  /// Copies values into parameters and buffers, also between devices. A tensor with several names
  /// may come under any of them. Changes nothing if it throws.
  /// @param strict refuse missing and unexpected keys.
  /// @throws InvalidArgument naming all missing and unexpected keys, all shapes and dtypes that do
  /// not fit, and parameters into which a WeightAverage has put its averages.
  LoadReport load_state_dict(const NamedTensors& state, bool strict = true);
  /// @}

  /// Adds a parameter and returns it. An undefined tensor is returned and not registered.
  /// @throws InvalidArgument for a doubled or empty name, one with a dot, or a tensor that is not a
  /// leaf of floating dtype. The same holds for the others.
  Tensor register_parameter(std::string_view name, Tensor value);
  /// Adds a buffer: state that is no parameter. One that is not persistent stays out of the state.
  Tensor register_buffer(std::string_view name, Tensor value, bool persistent = true);
  /// Adds a child. @throws InvalidArgument also for a module that this one is part of.
  void register_module(std::string_view name, IntrusivePtr<Module> child);

  /// @name Calls
  /// @{

  /// Adds hooks around `forward` when it runs through a handle; `replace` and `after` hooks run in
  /// reverse order, each seeing what is replaced by then, and not if `forward` throws. Returns a
  /// number to remove them by.
  std::uint64_t add_call_hooks(CallHooks hooks);
  /// Removes hooks; unknown numbers are ignored.
  void remove_call_hooks(std::uint64_t id) noexcept;
  /// Whether any of them see arguments or results: then each layer has to be called, and has to
  /// give what it gives alone.
  bool has_call_hooks() const noexcept { return is_seen_; }
  /// A number that tells which hooks there are; 0: none.
  std::uint64_t call_hooks_signature() const noexcept;
  /// Tells those that see no values that a call begins.
  void begin_call() {
    if (!call_hooks_.empty()) [[unlikely]]
      run_begin_hooks();
  }
  /// Runs the hooks before a call.
  void run_before_hooks(std::span<const Tensor> arguments);
  /// Runs the hooks after a call that gives no single tensor.
  void run_after_hooks(std::span<const Tensor> results);
  /// Runs the hooks after a call that gives a tensor. @return it, or what it is replaced by.
  Tensor run_after_hooks(std::span<const Tensor> arguments, Tensor result);
  /// @}

  /// What is printed behind the type's name: "784, 128, bias=false".
  virtual std::string describe() const { return {}; }

 protected:
  Module() = default;
  ~Module() override;

 private:
  friend class Construction;
  /// Implemented by what `make` creates and nothing else: a module on the stack or inside another
  /// object would be deleted by its last handle.
  virtual void only_make_and_child_create_modules() const = 0;

  struct Entry {
    std::string name;
    Tensor tensor;
    bool is_parameter;
    bool persistent;
  };
  using Visitor = FunctionRef<void(const std::string& name, const Entry&)>;

  void check_name(std::string_view name) const;
  enum class HookOrder : unsigned char { first_first, last_first };
  void for_each_call_hook(HookOrder order, FunctionRef<void(const CallHooks&)> visit) const;
  void run_begin_hooks();
  void note_who_sees() noexcept;
  /// Gives every tensor the array of what `converted` makes of it, or none if a wrapper refuses.
  void convert(FunctionRef<Tensor(const Entry&)> converted);
  /// Visits all entries below this module, doubled ones too.
  void visit(const std::string& prefix, Visitor visitor) const;

  std::vector<Entry> entries_;
  std::vector<std::pair<std::string, IntrusivePtr<Module>>> children_;
  std::vector<std::pair<std::uint64_t, CallHooks>> call_hooks_;
  std::uint64_t next_call_hook_ = 0;
  bool is_seen_ = false;      // any of the hooks gets values
  Module* parent_ = nullptr;  // the first that registered this one, while it is alive
  std::string name_;          // there
  bool training_ = true;
  autograd::Place place_{[this] { return path(); }};
};

/// The class of a module as one knows it: "Linear".
std::string type_name(const Module& module);

/// Prints the tree: names, types, what they describe, and numbers of parameters.
std::ostream& operator<<(std::ostream& out, const Module& module);

}  // namespace lockstep::nn
