#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/optim/parameter_list.hpp"
#include "lockstep/optim/state_format.hpp"

/// @file
/// The base of optimizers.

namespace lockstep::optim {

class StateReader;

/// Options under their names, in a fixed order; booleans are 0 or 1.
using NamedOptions = std::vector<std::pair<std::string_view, double>>;

/// Names of states, in static storage.
using StateNames = std::span<const std::string_view>;

/// What an optimizer keeps for one parameter. It computes in f32 (f64 for f64 parameters): so its
/// state has that dtype unless a StateFormat says otherwise, and a bf16 or f16 parameter has a
/// master copy that keeps the small steps.
struct ParameterState {
  std::string name;  ///< empty if unknown
  Tensor parameter;
  std::size_t group = 0;
  std::uint32_t rounding_key = 0;      ///< of its name, or its position; keys random roundings
  bool rounds_stochastically = false;  ///< the parameter, which is bf16 and has no master copy
  /// Updates so far, i64, counted on the device, and a number that its kernels keep beside it;
  /// undefined until the first step.
  Tensor counter;
  std::array<Tensor, 4> state;   ///< what the optimizer remembers; undefined until the first step
  std::array<Tensor, 4> scales;  ///< of states in 8 bits; else undefined
  std::array<bool, 4> nonnegative = {};  ///< states whose elements are never below 0
  Tensor carried;  ///< f64, what it remembers of the whole parameter; undefined where it does not
  Tensor master;   ///< f32 value that the parameter is rounded from; undefined where it has none
  /// The parameter's value stamp after the last update: others may have written since.
  std::optional<std::uint64_t> written = {};
};

/// How the gradients differ from those of the loss: f64 scalars in the memory of their device, so
/// that nothing waits for them. An undefined one says that they do not.
struct GradientScaling {
  Tensor scale;      ///< they are so many times too large
  Tensor found_inf;  ///< not 0: some are not finite, so that the step changes and counts nothing
  std::string how;   ///< what all ranks must agree on, for whoever compares their updates
};

/// What changes from one step to the next: f64 scalars in the memory of the parameters' device, to
/// be read by kernels when they run, since work that is queued once may run many times.
struct StepScalars {
  Tensor lr;                ///< of the group
  GradientScaling scaling;  ///< of the gradients
};

/// Changes parameters by their gradients. Parameters without a gradient are left alone, and so is
/// what is remembered of them. Work is queued on the current stream of the parameters' device.
///
/// A module may be moved or converted between steps: state follows its parameters. Values written
/// to parameters between steps (a loaded checkpoint) are taken over by their master copies; those
/// that a collective wrote, too, if it was given parallel::writable_buffer(parameter).
class Optimizer {
 public:
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() = default;

  /// Updates all parameters that have a gradient.
  /// @param scaling what a loss scaler did to the gradients, and found in them; it must be on their
  /// device. @throws InvalidArgument if it is not, and in data parallelism for gradients that
  /// backwards under no_sync() have added up and none has reduced; then nothing has changed.
  void step(const GradientScaling& scaling = {});
  /// Clears all gradients, or with `set_to_none = false` fills those present with zeros.
  void zero_grad(bool set_to_none = true);

  /// Has a function called at the end of each `step`, when its work is queued: also of one that
  /// found no gradients, or whose loss scaler skips it. In a captured step that is once, when it is
  /// captured. @return a number to remove it by.
  std::uint64_t register_step_post_hook(std::function<void()> hook);
  /// Takes such a function away; unknown numbers are ignored.
  void remove_step_post_hook(std::uint64_t hook) noexcept;

  /// Number of parameter groups.
  std::size_t group_count() const noexcept { return base_lr_.size(); }
  /// All parameters, group after group.
  std::vector<Tensor> parameters() const;
  /// What is kept for each of them, in that order.
  std::span<const ParameterState> parameter_states() const noexcept { return states_; }

  /// Learning rate of a group. @throws InvalidArgument for a group that does not exist.
  virtual double lr(std::size_t group = 0) const = 0;
  /// Sets the learning rate of a group. @throws InvalidArgument as above, and for a negative rate.
  void set_lr(double lr, std::size_t group);
  /// Sets the learning rate of all groups.
  void set_lr(double lr);
  /// The rate that a group was last given by its options or `set_lr`: what schedules start from.
  double base_lr(std::size_t group = 0) const;
  /// All options of a group under their names. @throws InvalidArgument as `lr`.
  virtual NamedOptions named_options(std::size_t group = 0) const = 0;

  /// How it keeps the states of a group. @throws InvalidArgument as `lr`.
  virtual StateFormat state_format(std::size_t group = 0) const {
    base_lr(group);
    return StateFormat::full;
  }

  /// All that a checkpoint must keep: for a parameter "fc1.weight" its "fc1.weight.step" (i64) and
  /// ".group" (i64), and after its first step its state, such as "fc1.weight.exp_avg", and
  /// ".master" (which stays when other options count steps anew); for each group its options, such
  /// as "groups.0.lr" (f64); and the optimizer's class, "groups.kind.AdamW" (i64, 1). A parameter
  /// without a name goes by its position: "3.step".
  /// States are f32 (f64 for f64 parameters) whatever their format, which is not saved. Tensors
  /// share memory with the optimizer, but for states in few bits.
  /// @throws InvalidArgument as `check_distinguishable`.
  NamedTensors state_dict() const;
  /// The same with states for parameters without a step, too: zeros, and masters of their values.
  /// So ranks that have updated different parameters have the same tensors. `load_state_dict` takes
  /// it.
  NamedTensors even_state_dict() const;
  /// @throws InvalidArgument for several groups with nameless parameters, which positions would not
  /// tell apart: there is no state of such to be saved.
  void check_distinguishable() const;
  /// Takes over what `state_dict` gave, options included, whatever format its states had: in few
  /// bits they are rounded to the nearest, which changes none that were in that format. Changes
  /// nothing if it throws. Tensors that are moved in, and that nobody else has, become the states;
  /// others are copied, and the optimizer's own stay where they are.
  /// @throws InvalidArgument naming all missing and unexpected keys, shapes and dtypes that do not
  /// fit, parameters that are grouped otherwise, and another optimizer's class.
  void load_state_dict(NamedTensors state);
  /// As `load_state_dict` where all fits. Else takes over the states of those parameters of which
  /// all fits, and leaves the others, and the options of all groups, as they are.
  /// @return a line for each parameter that was left, "head.weight.exp_avg: missing", and for each
  /// option that is another there: "groups.0.lr: 0.01 there, 0.1 here stays".
  std::vector<std::string> load_matching_state(NamedTensors state);
  /// The memory in which it keeps states of elements. What `state_dict` gives of it are the states
  /// themselves; the others are copies, of states in few bits.
  std::set<const Storage*> state_memory() const;
  /// Takes over the states of PyTorch's optimizer of the same name: tensors "<parameter>.<state>",
  /// such as "0.weight.exp_avg" and "0.weight.step", in any dtype (docs/optimizers.md shows how to
  /// save them). Options and groups stay as they are here; parameters without a state there start
  /// anew; master copies are the parameters' values.
  /// @throws InvalidArgument with everything that does not fit, names that are not asked for among
  /// it; then nothing has changed.
  void load_pytorch_state(const NamedTensors& state);

 protected:
  Optimizer() = default;
  /// Adds a group, which may be empty. @throws InvalidArgument for a parameter that is there
  /// already or shares memory with one, a name that is taken, or a tensor that is not a contiguous
  /// leaf of floating dtype; then nothing has changed.
  void add_group(const ParameterList& parameters, double lr);
  /// @throws InvalidArgument if there are no parameters at all.
  void check_not_empty() const;
  /// For updates that take a whole parameter. @throws InvalidArgument, with a hint, if one is a
  /// shard (parallel::ParameterShards).
  static void refuse_shards(const ParameterList& parameters,
                            std::string_view hint = "use one that updates element by element");

  /// The names of the states that it keeps for a parameter of a group, in the order of
  /// ParameterState::state.
  virtual StateNames state_names(std::size_t group, const Tensor& parameter) const = 0;
  /// The shape of such a state.
  virtual Shape state_shape(const Tensor& parameter, std::string_view) const {
    return parameter.shape();
  }
  /// The name of ParameterState::carried; empty where there is none.
  virtual std::string_view carried_name() const { return {}; }
  /// Whether bf16 and f16 parameters of a group have master copies.
  virtual bool uses_master_weights(std::size_t group) const = 0;
  /// Whether bf16 parameters of a group that have no master copies are rounded stochastically.
  virtual bool rounds_stochastically(std::size_t) const { return false; }
  /// Calls what changes a group's options, and keeps its states by their names. A parameter that
  /// keeps none of those that it needs counts its steps anew.
  void change_options(std::size_t group, const std::function<void()>& change);
  /// Sets a group's learning rate, but not its base rate.
  virtual void schedule_lr(double lr, std::size_t group) = 0;
  /// Sets all options of a group from what `named_options` gave. Changes nothing if it throws.
  virtual void set_named_options(const NamedOptions& options, std::size_t group) = 0;
  /// Updates parameters of one group, device and dtype, whose states and master copies are there,
  /// scales gradients and skips the step as `scalars.scaling` says, where its tensors are defined,
  /// and adds 1 to the first number of ParameterState::counter of each: states of a parameter
  /// without steps are not saved.
  virtual void update(std::size_t group, std::span<ParameterState* const> parameters,
                      const StepScalars& scalars) = 0;

 private:
  friend class LRScheduler;
  friend class ReduceLROnPlateau;

  using Changed = std::vector<ParameterState*>;
  bool has_shards() const;
  void prepare(ParameterState& each, bool reads_only = false) const;
  void check_formats(const ParameterState& each) const;
  void check_state_names(const StateNames& names) const;
  void check_unused(const ParameterState& each) const;
  const std::string& kind() const;
  void begin_update(const Changed& changed, const std::string& scaling);
  static void end_update(const Changed& changed);
  void run_post_hooks();
  class Captured;
  void join_recording(const Changed& changed, const std::string& scaling);
  void check_prepared(const ParameterState& each) const;
  void announce_update(const Changed& changed, const std::string& scaling);
  std::string describe_next_update() const;
  void update_batch(std::vector<ParameterState*>& pending, const GradientScaling& scaling);
  const Tensor& lr_on(Device device, std::size_t group);
  std::string key_of(std::size_t parameter) const;
  NamedTensors saved_state(bool is_even) const;
  void add_unused_state(NamedTensors& state, const std::string& key, ParameterState each,
                        bool with_states) const;
  std::vector<std::optional<std::size_t>> match_groups(StateReader& reader) const;
  std::vector<ParameterState> read_states(StateReader& reader);
  std::vector<std::string> other_options(const NamedTensors& state) const;
  void read_state(StateReader& reader, const std::string& key, ParameterState& each) const;
  void read_pytorch_state(StateReader& reader, const std::string& key, ParameterState& each) const;
  void keep(ParameterState& each, std::size_t k, const Tensor& value) const;
  void note_loaded(std::uint64_t state) noexcept;

  std::vector<ParameterState> states_;
  std::vector<double> base_lr_;          // of each group
  std::uint64_t updates_ = 0;            // since it was made
  std::uint64_t drops_ = 0;              // changes of options that dropped states
  std::uint64_t loads_ = 0;              // states loaded since then
  std::optional<std::uint64_t> loaded_;  // what tells the state that was loaded last from others
  std::uint64_t loaded_after_ = 0;       // which update
  mutable std::string kind_;             // the class, once it was asked for
  // Learning rates in the memory of each device that has parameters, and what they were last set
  // to.
  struct DeviceRates {
    Device device;
    std::vector<Tensor> of_group;
    std::vector<double> written;
  };
  std::vector<DeviceRates> rates_;
  std::uint64_t next_hook_ = 0;
  std::vector<std::pair<std::uint64_t, std::function<void()>>> post_hooks_;
};

/// An optimizer whose groups have options of one type, with a member `lr`, a method `check` that
/// throws for values out of range, and a static `visit(options, visitor)` that calls
/// `visitor(name, member)` for all members that make up the update, each a double or a bool. Beside
/// them `master_weights`, `stochastic_rounding` and `state_format` mean what they do in
/// AdamWOptions.
template <class GroupOptions>
class OptimizerWith : public Optimizer {
 public:
  using Options = GroupOptions;
  using Groups = std::vector<ParameterGroup<Options>>;

  /// Options of a group. @throws InvalidArgument for a group that does not exist.
  const Options& options(std::size_t group = 0) const { return options_[checked(group)]; }
  /// Gives a group other options from the next step on, such as another weight decay. Another
  /// learning rate than lr() is as of `set_lr`; the same one leaves a schedule as it is. States
  /// that the new options have no use for are dropped, and those that only they use begin as in a
  /// new optimizer. In data parallelism every rank does the same.
  /// @throws InvalidArgument for a group that does not exist, values out of range, and another
  /// `master_weights`, `stochastic_rounding` or `state_format`: states are kept by these. Nothing
  /// has changed then.
  void set_options(const Options& options, std::size_t group = 0) {
    options.check();
    check_kept_alike(this->options(group), options);
    change_options(group, [&] {
      if (options.lr != lr(group)) set_lr(options.lr, group);
      options_[group] = options;
    });
  }
  /// Adds a group whose parameters are trained from the next step on, such as those that were
  /// frozen before. An `LRScheduler` that is there already leaves its rate alone; a captured step
  /// is captured anew. In data parallelism every rank does the same.
  /// @throws InvalidArgument as the constructor does, for this group; then nothing has changed.
  void add_param_group(const ParameterGroup<Options>& group) {
    group.options.check();
    check_parameters(group.parameters);
    options_.reserve(options_.size() + 1);
    add_group(group.parameters, group.options.lr);
    options_.push_back(group.options);
  }
  double lr(std::size_t group = 0) const override { return options(group).lr; }
  StateFormat state_format(std::size_t group = 0) const override {
    if constexpr (requires(Options options) { options.state_format; })
      return options(group).state_format;
    return Optimizer::state_format(group);
  }
  NamedOptions named_options(std::size_t group = 0) const override {
    NamedOptions named;
    Options::visit(options(group), [&](std::string_view name, const auto& value) {
      named.emplace_back(name, static_cast<double>(value));
    });
    return named;
  }

 protected:
  explicit OptimizerWith(const Groups& groups) {
    for (const auto& group : groups) {
      group.options.check();
      add_group(group.parameters, group.options.lr);
      options_.push_back(group.options);
    }
    check_not_empty();
  }
  /// What the optimizer asks of a group that is added. @throws InvalidArgument
  virtual void check_parameters(const ParameterList&) const {}

  bool uses_master_weights(std::size_t group) const override {
    if constexpr (requires(Options options) { options.master_weights; })
      return options(group).master_weights;
    return true;
  }
  bool rounds_stochastically(std::size_t group) const override {
    if constexpr (requires(Options options) { options.stochastic_rounding; })
      return options(group).stochastic_rounding;
    return false;
  }
  void schedule_lr(double lr, std::size_t group) override {
    Options changed = options(group);
    changed.lr = lr;
    changed.check();
    options_[group] = changed;
  }
  void set_named_options(const NamedOptions& named, std::size_t group) override {
    Options changed = options(group);
    auto next = named.begin();
    Options::visit(changed, [&]<class T>(std::string_view, T& value) {
      value = static_cast<T>((next++)->second);
    });
    changed.check();
    options_[group] = changed;
  }

 private:
  static void check_kept_alike(const Options& now, const Options& next) {
    const auto check = [](bool is_alike, std::string_view name) {
      LOCKSTEP_CHECK(
          is_alike, InvalidArgument, "an optimizer was given another ", name,
          ", which its states are kept by; make a new one, and load the old one's state");
    };
    if constexpr (requires { now.master_weights; })
      check(now.master_weights == next.master_weights, "master_weights");
    if constexpr (requires { now.stochastic_rounding; })
      check(now.stochastic_rounding == next.stochastic_rounding, "stochastic_rounding");
    if constexpr (requires { now.state_format; })
      check(now.state_format == next.state_format, "state_format");
  }
  std::size_t checked(std::size_t group) const {
    LOCKSTEP_CHECK(group < options_.size(), InvalidArgument, "parameter group ", group,
                   " of an optimizer that has ", options_.size());
    return group;
  }

  std::vector<Options> options_;
};

}  // namespace lockstep::optim
