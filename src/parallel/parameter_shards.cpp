#include "lockstep/parallel/parameter_shards.hpp"

#include <algorithm>
#include <utility>

#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/memory/block_observer.hpp"
#include "lockstep/parallel/writable_buffer.hpp"
#include "lockstep/tensor/factories.hpp"
#include "parallel/gather_gate.hpp"
#include "parallel/gathered_parameters.hpp"
#include "parallel/group_memory.hpp"
#include "parallel/names.hpp"
#include "runtime/step_recording.hpp"
#include "tensor/write_note.hpp"

namespace lockstep::parallel {
namespace {

/// What of a parameter's elements lies in a rank's part of its bucket.
struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t count() const { return end - begin; }
};

Range range_of_rank(std::int64_t offset, std::int64_t numel, std::int64_t part, int rank) {
  const std::int64_t begin = std::clamp(part * rank - offset, std::int64_t{0}, numel);
  const std::int64_t end = std::clamp(part * (rank + 1) - offset, std::int64_t{0}, numel);
  return {begin, end};
}

/// The same elements, of which writes are counted apart from those to others in the array.
Tensor counted_apart(const Tensor& view) {
  return from_blob(view.data_ptr(), view.shape(), view.options(), view.impl().storage);
}

/// Whether a state dict has one number of it for the whole parameter, however large that is.
bool is_count(std::string_view state) {
  return state == "step" || state == "group" || state == "mu_product";
}

/// Of shards whose wrapper has ended: without it they would never have a gradient again, and steps
/// would change nothing.
class Ended final : public autograd::GradientSink {
 public:
  static Ended& sink() {
    static Ended ended;
    return ended;
  }
  Tensor memory_for(std::size_t) override { refuse(); }
  void on_final(std::size_t) override { refuse(); }
  void check_update(std::size_t) const override { refuse(); }
  void on_taken(std::size_t) noexcept override {}
  autograd::GradientShare share(std::size_t) const override {
    return autograd::GradientShare::part;
  }

 private:
  [[noreturn]] static void refuse() {
    LOCKSTEP_THROW(InvalidArgument,
                   "the shards of a DistributedDataParallel that has ended have no gradients any "
                   "more, and an optimizer's steps would change nothing; keep it as long as its "
                   "optimizer, or make a new one for the new wrapper");
  }
};

}  // namespace

ParameterShards::ParameterShards(NamedTensors parameters, CommunicatorPtr group,
                                 std::span<const Bucket> plan, std::vector<Tensor> averages,
                                 autograd::GradientSink& updates, Identify identify,
                                 std::function<bool()> in_backward)
    : parameters_(std::move(parameters)),
      shards_(parameters_.size()),
      group_(std::move(group)),
      averages_(std::move(averages)),
      gradients_(parameters_.size()),
      ranges_(parameters_.size()),
      bucket_of_(parameters_.size()),
      places_(parameters_.size()),
      updates_(updates),
      identify_(std::move(identify)),
      changed_(plan.size()),
      writes_(parameters_.size()) {
  const NoGradGuard no_recording;
  const bool is_whole = !in_backward;
  for (std::size_t b = 0; b < plan.size(); ++b) {
    const TensorOptions options{plan[b].dtype, plan[b].device};
    values_.push_back(is_whole ? zeros_for(*group_, plan[b].numel, options)
                               : zeros({averages_[b].numel()}, options));
    members_.push_back(plan[b].parameters);
    for (std::size_t k = 0; k < plan[b].parameters.size(); ++k) {
      bucket_of_[plan[b].parameters[k]] = b;
      if (is_whole) place_whole(plan[b].parameters[k], plan[b].offsets[k]);
      make_shard(plan[b].parameters[k], plan[b].offsets[k], is_whole);
    }
    if (is_whole) make_gate(b);
  }
  if (!is_whole)
    gathered_ = std::make_unique<GatheredParameters>(parameters_, group_, plan, values_, identify_,
                                                     std::move(in_backward));
}

/// Of a backward, which would leave there what averages are to be.
void ParameterShards::on_final(std::size_t index) {
  LOCKSTEP_THROW(
      InvalidArgument, "backward reached this rank's shard of parameter ", shards_[index].first,
      ", whose gradient is its part of the averages and nothing else. Compute loss terms of "
      "parameters, such as an L2 penalty, from those of the module, in the loss of a forward (with "
      "zero_stage 3 within the module's forward), or give the optimizer a weight_decay");
}

ParameterShards::~ParameterShards() {
  clear_gradients();
  for (const auto& [name, shard] : shards_) {
    autograd::leaf_of(shard).release_sink(*this);
    autograd::leaf_of(shard).set_sink(Ended::sink(), 0);
  }
}

void ParameterShards::place_whole(std::size_t index, std::int64_t offset) {
  auto& [name, parameter] = parameters_[index];
  const Tensor place = counted_apart(values_[bucket_of_[index]]
                                         .slice(0, offset, offset + parameter.numel())
                                         .reshape(parameter.shape()));
  name_memory(place.data_ptr(), place.nbytes(), name);
  Tensor(place).copy_(parameter.detach());
  parameter.set_data(place);
  places_[index] = place.impl().storage;
}

void ParameterShards::make_shard(std::size_t index, std::int64_t offset, bool is_whole) {
  auto& [name, parameter] = parameters_[index];
  const Tensor& values = values_[bucket_of_[index]];
  const Tensor& averages = averages_[bucket_of_[index]];
  for (int rank = 0; rank < group_->size(); ++rank) {
    const Range range = range_of_rank(offset, parameter.numel(), averages.numel(), rank);
    ranges_[index].push_back(range.count());
    if (rank != group_->rank()) continue;
    const Shape shape = shape_of_shard({.whole = parameter.shape(), .count = range.count()});
    const std::int64_t part = averages.numel() * rank;
    const std::int64_t from = range.count() > 0 ? offset + range.begin - part : 0;
    const std::int64_t own = is_whole ? part + from : from;
    Tensor shard = values.slice(0, own, own + range.count()).reshape(shape).detach();
    if (is_whole) {
      shard.impl().storage = Storage::part_of(places_[index], shard.impl().data, shard.nbytes());
    } else {
      const Tensor whole = parameter.detach().contiguous();
      name_memory(shard.data_ptr(), shard.nbytes(), name);
      shard.copy_(whole.reshape({whole.numel()}).slice(0, range.begin, range.end).reshape(shape));
      parameter.set_data(whole);  // from now on of the layout that it is gathered in
    }
    shard.set_requires_grad();
    shards_[index] = {name, shard};
    gradients_[index] = averages.slice(0, from, from + range.count()).reshape(shape);
    autograd::leaf_of(shard).set_sink(*this, index);
  }
}

void ParameterShards::make_gate(std::size_t bucket) {
  std::vector<IntrusivePtr<Storage>> parts;
  for (const std::size_t index : members_[bucket]) {
    parts.push_back(places_[index]);
    parts.push_back(shards_[index].second.impl().storage);
  }
  gates_.push_back(std::make_unique<GatherGate>(values_[bucket], std::move(parts)));
}

void ParameterShards::after_updates() {
  // A forward wants first what was registered first, and buckets are in the reverse order.
  for (std::size_t b = changed_.size(); b-- > 0;) {
    if (changed_[b].empty()) continue;
    const std::vector<std::size_t> changed = std::exchange(changed_[b], {});
    if (gathered_)
      gathered_->changed(b);
    else
      renew(b, changed, Writer::update);
  }
  if (StepRecording::on(group_->device())) wait();  // what is captured comes back to the stream
}

void ParameterShards::share_writes() {
  for (std::size_t b = gates_.size(); b-- > 0;)
    if (std::ranges::any_of(members_[b], [this](std::size_t i) { return is_written(i); }))
      renew(b, members_[b], Writer::program);
  if (StepRecording::on(group_->device())) wait();
}

/// Whether the program has written to the shard, and the other ranks have not got that.
bool ParameterShards::is_written(std::size_t index) const {
  return shards_[index].second.impl().storage->writes() != writes_[index];
}

void ParameterShards::note_writes(std::size_t bucket) {
  if (StepRecording* const step = StepRecording::on(group_->device()))
    note_writes_of_launches(*step);
  for (const std::size_t i : members_[bucket])
    writes_[i] = shards_[i].second.impl().storage->writes();
}

/// A launch counts as a write to all that the step writes to, and gathers that but for what the
/// step writes by hand after its last gather.
void ParameterShards::note_writes_of_launches(StepRecording& step) {
  if (!step.meets(&writes_)) return;
  const auto written_last = std::make_shared<std::vector<bool>>();
  step.at_end([this, written_last] {
    for (std::size_t i = 0; i < writes_.size(); ++i) written_last->push_back(is_written(i));
  });
  step.after_launch([this, written_last] {
    for (std::size_t i = 0; i < writes_.size(); ++i)
      if (!(*written_last)[i]) writes_[i] = shards_[i].second.impl().storage->writes();
  });
}

/// Gathers a bucket. @param changed parameters whose values become others.
void ParameterShards::renew(std::size_t bucket, std::span<const std::size_t> changed,
                            Writer writer) {
  for (const std::size_t index : changed) note_write(parameters_[index].second);
  note_writes(bucket);
  gates_[bucket]->close(start_gather(bucket, writer));
}

void ParameterShards::wait() const {
  for (auto gate = gates_.rbegin(); gate != gates_.rend(); ++gate) (*gate)->wait();
}

comm::Work ParameterShards::start_gather(std::size_t bucket, Writer writer) const {
  const NoGradGuard no_recording;
  const Tensor& values = values_[bucket];
  const std::int64_t part = averages_[bucket].numel();
  const Tensor own = values.slice(0, part * group_->rank(), part * (group_->rank() + 1));
  const auto label = [this, bucket, writer] {
    const std::string names = names_of(parameters_, members_[bucket]);
    if (writer == Writer::update)
      return detail::concat("updated parameters of bucket ", bucket, " (", names, ')');
    return detail::concat("parameters of bucket ", bucket,
                          ", as its shards were written to (every rank must write to its own, also "
                          "where they are empty): ",
                          names);
  };
  const std::string told = label();
  comm::CollectiveOptions options{.label = told, .id = identify_(bucket)};
  if (StepRecording::on(group_->device()))
    options.renew = [this, bucket, label](std::string& name, comm::CollectiveId& id) {
      name = label();
      id = identify_(bucket);
    };
  return group_->all_gather({own.data_ptr(), part, own.dtype()}, writable_buffer(values), {},
                            options);
}

void ParameterShards::take_gradients(std::span<const std::int32_t> users) {
  for (std::size_t i = 0; i < shards_.size(); ++i)
    if (users.empty() || users[i] > 0)
      autograd::leaf_of(shards_[i].second).set_gradient(gradients_[i]);
}

void ParameterShards::clear_gradients() noexcept {
  for (const auto& [name, shard] : shards_) autograd::leaf_of(shard).clear_gradient();
}

void ParameterShards::check_cleared() const {
  for (const auto& [name, shard] : shards_)
    LOCKSTEP_CHECK(
        !shard.grad().defined(), InvalidArgument, "the averaged gradient of ", name,
        " was not cleared, and a backward would overwrite it. Give the optimizer the parameters of "
        "the DistributedDataParallel, not of the module, and call its zero_grad after each step, "
        "with "
        "set_to_none = true; "
        "to add up gradients, let all backwards but the last one of a step run under no_sync()");
}

void ParameterShards::check_in_place() const {
  if (gathered_) return gathered_->check_in_place();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, parameter] = parameters_[i];
    LOCKSTEP_CHECK(
        parameter.impl().storage == places_[i], InvalidArgument, "parameter ", name,
        " was given another array since the model was wrapped, which its optimizer would not "
        "change; copy_ values into it, or wrap the model again");
  }
}

/// @return the number of parameters if the key is that of none.
std::size_t ParameterShards::parameter_of(std::string_view key) const {
  std::size_t found = parameters_.size(), length = 0;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const std::string& name = parameters_[i].first;
    if (name.size() < length || key.size() <= name.size() || key[name.size()] != '.' ||
        !key.starts_with(name) || is_count(key.substr(name.size() + 1)))
      continue;
    found = i;
    length = name.size();
  }
  return found;
}

std::optional<ShardRange> ParameterShards::range_of(std::string_view key) const {
  const auto named = std::ranges::find(parameters_, key, &NamedTensors::value_type::first);
  const std::size_t index = named != parameters_.end()
                                ? static_cast<std::size_t>(named - parameters_.begin())
                                : parameter_of(key);
  if (index == parameters_.size()) return std::nullopt;
  ShardRange range{.whole = parameters_[index].second.shape(),
                   .count = shards_[index].second.numel()};
  for (int rank = 0; rank < group_->rank(); ++rank)
    range.begin += ranges_[index][static_cast<std::size_t>(rank)];
  return range;
}

NamedTensors ParameterShards::gather(const NamedTensors& state) const {
  const NoGradGuard no_recording;
  NamedTensors whole;
  for (const auto& [key, value] : state) {
    const std::size_t index = parameter_of(key);
    if (index == parameters_.size() || value.shape() != shards_[index].second.shape()) {
      whole.emplace_back(key, value);
      continue;
    }
    const Tensor own = value.detach().to(group_->device()).contiguous();
    const Tensor all = empty({parameters_[index].second.numel()}, own.options());
    group_
        ->all_gather({own.data_ptr(), own.numel(), own.dtype()}, writable_buffer(all),
                     ranges_[index], {.label = "state " + key})
        .wait();
    whole.emplace_back(key, all.reshape(parameters_[index].second.shape()));
  }
  return whole;
}

NamedTensors ParameterShards::scatter(const NamedTensors& state) const {
  const NoGradGuard no_recording;
  NamedTensors own;
  for (const auto& [key, value] : state) {
    const auto range = range_of(key);
    if (!range || value.shape() != range->whole) {
      own.emplace_back(key, value);
      continue;
    }
    own.emplace_back(key, value.detach()
                              .reshape({value.numel()})
                              .slice(0, range->begin, range->begin + range->count)
                              .reshape(shape_of_shard(*range))
                              .clone());
  }
  return own;
}

}  // namespace lockstep::parallel
