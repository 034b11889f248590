#include <algorithm>
#include <string>
#include <utility>

#include "core/fnv_hash.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/parallel/agreement.hpp"
#include "lockstep/tensor/factories.hpp"
#include "lockstep/train/periodic_averaging.hpp"
#include "optim/state_reader.hpp"

// What a PeriodicAveraging keeps in checkpoints.

namespace lockstep {
namespace {

constexpr std::string_view of_outer = "outer_optimizer.";

std::string key_of(std::size_t fragment, std::string_view what) {
  return detail::concat("fragments.", fragment, ".", what);
}

std::uint64_t hash_of(std::uint64_t hash, const std::string& name, const Tensor& value) {
  const Tensor here = value.detach().to(cpu).contiguous();
  const std::uint64_t parts[] = {hash, detail::fnv_hash(name.data(), name.size()),
                                 detail::fnv_hash(here.data_ptr(), here.nbytes())};
  return detail::fnv_hash(parts, sizeof parts);
}

}  // namespace

NamedTensors PeriodicAveraging::state_dict() {
  const NoGradGuard no_recording;
  if (follows_parameters_) take_parameters();
  NamedTensors state;
  state.emplace_back("step", tensor(step_));
  for (std::size_t f = 0; f < fragments_.size(); ++f) {
    Fragment& fragment = fragments_[f];
    state.emplace_back(key_of(f, "started"), tensor(fragment.started));
    state.emplace_back(key_of(f, "is_pending"), tensor(std::int64_t{fragment.is_pending}));
    for (parallel::TensorWork& work : fragment.works) work.wait();
    for (const Entry& entry : fragment.entries)
      if (fragment.is_pending)
        state.emplace_back(key_of(f, "average." + entry.name),
                           place_of(entry, fragment.arrays).to(cpu).clone());
    for (const Entry& entry : fragment.entries)
      if (entry.outer.defined())
        state.emplace_back("outer." + entry.name, entry.outer.detach().to(cpu).clone());
  }
  if (outer_)
    for (const auto& [key, value] : outer_->state_dict())
      state.emplace_back(std::string(of_outer) + key, value.to(cpu).clone());
  return state;
}

void PeriodicAveraging::load_state_dict(const NamedTensors& state) {
  std::uint64_t hash = 0;
  for (const auto& [key, value] : state) hash = hash_of(hash, key, value);
  parallel::check_same_value(*group_, "the state that " + name_ + " loads", hash);
  take_over(state);
}

// Asks no other rank, which may have refused another state.
void PeriodicAveraging::take_over(const NamedTensors& state) {
  const NoGradGuard no_recording;
  NamedTensors own, of_optimizer;
  for (const auto& [key, value] : state)
    if (outer_ && key.starts_with(of_outer))
      of_optimizer.emplace_back(key.substr(of_outer.size()), value);
    else
      own.emplace_back(key, value);
  optim::StateReader reader(own, name_ + "'s state");
  const auto number = [&](const std::string& key) {
    return static_cast<std::int64_t>(reader.number(key, DType::i64, 0));
  };
  const std::int64_t step = number("step");
  std::vector<Fragment> loaded(fragments_.size());
  std::vector<Tensor> outer;
  for (std::size_t f = 0; f < fragments_.size(); ++f) {
    loaded[f].started = number(key_of(f, "started"));
    loaded[f].is_pending = number(key_of(f, "is_pending")) != 0;
    if (loaded[f].is_pending) loaded[f].arrays = empty_arrays(fragments_[f]);
    // Versions before had whole arrays, in the order of registration.
    const bool is_in_arrays = reader.has(key_of(f, "average.0"));
    for (std::size_t a = 0; loaded[f].is_pending && is_in_arrays && a < loaded[f].arrays.size();
         ++a) {
      const Tensor array = reader.take(key_of(f, detail::concat("average.", a)),
                                       loaded[f].arrays[a].shape(), loaded[f].arrays[a].dtype());
      if (array.defined()) loaded[f].arrays[a].copy_(array);
    }
    for (const Entry& entry : fragments_[f].entries)
      if (loaded[f].is_pending && !is_in_arrays) {
        Tensor place = place_of(entry, loaded[f].arrays);
        const Tensor average =
            reader.take(key_of(f, "average." + entry.name), place.shape(), place.dtype());
        if (average.defined()) place.copy_(average);
      }
    for (const Entry& entry : fragments_[f].entries)
      if (entry.outer.defined())
        outer.push_back(
            reader.take("outer." + entry.name, entry.outer.shape(), entry.outer.dtype()));
  }
  reader.finish();
  if (outer_) {
    const optim::SGDOptions given = outer_->options();  // which ranks have compared
    outer_->load_state_dict(of_optimizer);
    outer_->set_options(given);
  }
  auto value = outer.begin();
  for (std::size_t f = 0; f < fragments_.size(); ++f) {
    Fragment& fragment = fragments_[f];
    for (parallel::TensorWork& work : fragment.works) work.wait();
    fragment.works.clear();
    fragment.arrays = std::move(loaded[f].arrays);
    fragment.started = loaded[f].started;
    fragment.is_pending = loaded[f].is_pending;
    for (Entry& entry : fragment.entries)
      if (entry.outer.defined()) entry.outer.copy_(*value++);
  }
  step_ = step;
  follows_parameters_ = false;
}

checkpoint::TensorState state_of(PeriodicAveraging& averaging) {
  return {.pieces =
              [&averaging] {
                std::vector<checkpoint::Piece> pieces;
                for (const auto& [name, tensor] : averaging.state_dict())
                  pieces.push_back({.name = name, .tensor = tensor, .copied_later = true});
                return pieces;
              },
          .load = [&averaging](const NamedTensors& state) { averaging.take_over(state); },
          .object = &averaging.replica_};
}

}  // namespace lockstep
