#pragma once

#include "functional/group.hpp"
#include "functional/math.hpp"
#include "lockstep/core/dtype.hpp"

/// @file
/// The elementwise part of one step of a recurrent layer, for contiguous arrays with a row a
/// sequence: functors that compute one feature of one row. T is the dtype of the data, and cell
/// states are in its accumulation type. Constructed from the argument structs of the same names
/// (arguments/recurrent.hpp), which say what each array is.

namespace lockstep::functional::inline LOCKSTEP_ISA {

/// One element in the accumulation type.
template <class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE AccumulateType<T> load_one(const T* from) {
  return load<AccumulateType<T>, 1>(from)[0];
}
/// Writes one element, rounded to T.
template <class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void store_one(T* to, AccumulateType<T> value) {
  store(to, splat<AccumulateType<T>, 1>(value));
}

/// Gradient through y = sigmoid(x).
template <class A>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE A through_sigmoid(A dy, A y) {
  return dy * y * (1 - y);
}
/// Gradient through y = tanh(x).
template <class A>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE A through_tanh(A dy, A y) {
  return dy * (1 - y * y);
}

/// Gradient of a step's result: what came for the sequence's output, and from the step after it.
template <class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE AccumulateType<T> total_gradient(const T* dy, const T* dh,
                                                                    std::int64_t at) {
  const AccumulateType<T> from_output = dy ? load_one(dy + at) : AccumulateType<T>(0);
  return dh ? from_output + load_one(dh + at) : from_output;
}

/// LSTM (Hochreiter and Schmidhuber 1997): c = f c' + i g, h = o tanh(c).
template <class T>
struct LstmCell {
  using A = AccumulateType<T>;
  T *h, *gates;
  A* c;
  const A* c_before;
  std::int64_t features;

  template <class Arguments>
  explicit LstmCell(const Arguments& a)
      : h(a.h.template as<T>()),
        gates(a.gates.template as<T>()),
        c(a.c.template as<A>()),
        c_before(a.c_before.template as<A>()),
        features(a.h.shape[1]) {}

  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void operator()(std::int64_t row, std::int64_t j) const {
    const std::int64_t at = row * features + j;
    T* const gate = gates + 4 * row * features + j;
    const A i = math::sigmoid(load_one(gate));
    const A f = math::sigmoid(load_one(gate + features));
    const A g = math::tanh(load_one(gate + 2 * features));
    const A o = math::sigmoid(load_one(gate + 3 * features));
    const A state = f * c_before[at] + i * g;
    c[at] = state;
    store_one(h + at, o * math::tanh(state));
    store_one(gate, i);
    store_one(gate + features, f);
    store_one(gate + 2 * features, g);
    store_one(gate + 3 * features, o);
  }
};

/// Gradients of LstmCell.
template <class T>
struct LstmCellBackward {
  using A = AccumulateType<T>;
  T* dgates;
  A* dc;
  const T *dy, *dh, *gates;
  const A *c, *c_before;
  std::int64_t features;

  template <class Arguments>
  explicit LstmCellBackward(const Arguments& a)
      : dgates(a.dgates.template as<T>()),
        dc(a.dc.template as<A>()),
        dy(a.dy.template as<T>()),
        dh(a.dh.template as<T>()),
        gates(a.gates.template as<T>()),
        c(a.c.template as<A>()),
        c_before(a.c_before.template as<A>()),
        features(a.c.shape[1]) {}

  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void operator()(std::int64_t row, std::int64_t j) const {
    const std::int64_t at = row * features + j, first = 4 * row * features + j;
    const T* const gate = gates + first;
    const A i = load_one(gate), f = load_one(gate + features);
    const A g = load_one(gate + 2 * features), o = load_one(gate + 3 * features);
    const A squashed = math::tanh(c[at]);
    const A gradient = total_gradient(dy, dh, at);
    const A dstate = dc[at] + through_tanh(gradient * o, squashed);
    T* const dgate = dgates + first;
    store_one(dgate, through_sigmoid(dstate * g, i));
    store_one(dgate + features, through_sigmoid(dstate * c_before[at], f));
    store_one(dgate + 2 * features, through_tanh(dstate * i, g));
    store_one(dgate + 3 * features, through_sigmoid(gradient * squashed, o));
    dc[at] = dstate * f;
  }
};

/// GRU (Cho et al. 2014), with the reset gate behind the recurrent product, as cuDNN and PyTorch
/// have it: n = tanh(x_n + r h_n), h = (1 - z) n + z h'.
template <class T>
struct GruCell {
  using A = AccumulateType<T>;
  T *h, *gates, *candidate;
  const T *recurrent, *h_before;
  std::int64_t features;

  template <class Arguments>
  explicit GruCell(const Arguments& a)
      : h(a.h.template as<T>()),
        gates(a.gates.template as<T>()),
        candidate(a.candidate.template as<T>()),
        recurrent(a.recurrent.template as<T>()),
        h_before(a.h_before.template as<T>()),
        features(a.h.shape[1]) {}

  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void operator()(std::int64_t row, std::int64_t j) const {
    const std::int64_t at = row * features + j, first = 3 * row * features + j;
    T* const gate = gates + first;
    const T* const part = recurrent + first;
    const A h_n = load_one(part + 2 * features);
    const A r = math::sigmoid(load_one(gate) + load_one(part));
    const A z = math::sigmoid(load_one(gate + features) + load_one(part + features));
    const A n = math::tanh(load_one(gate + 2 * features) + r * h_n);
    store_one(h + at, n + z * (load_one(h_before + at) - n));
    store_one(candidate + at, h_n);
    store_one(gate, r);
    store_one(gate + features, z);
    store_one(gate + 2 * features, n);
  }
};

/// Gradients of GruCell.
template <class T>
struct GruCellBackward {
  using A = AccumulateType<T>;
  T *dgates, *drecurrent, *dh_before;
  const T *dy, *dh, *gates, *candidate, *h_before;
  std::int64_t features;

  template <class Arguments>
  explicit GruCellBackward(const Arguments& a)
      : dgates(a.dgates.template as<T>()),
        drecurrent(a.drecurrent.template as<T>()),
        dh_before(a.dh_before.template as<T>()),
        dy(a.dy.template as<T>()),
        dh(a.dh.template as<T>()),
        gates(a.gates.template as<T>()),
        candidate(a.candidate.template as<T>()),
        h_before(a.h_before.template as<T>()),
        features(a.h_before.shape[1]) {}

  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void operator()(std::int64_t row, std::int64_t j) const {
    const std::int64_t at = row * features + j, first = 3 * row * features + j;
    const T* const gate = gates + first;
    const A r = load_one(gate), z = load_one(gate + features), n = load_one(gate + 2 * features);
    const A gradient = total_gradient(dy, dh, at);
    const A dn = through_tanh(gradient * (1 - z), n);
    const A dz = through_sigmoid(gradient * (load_one(h_before + at) - n), z);
    const A dr = through_sigmoid(dn * load_one(candidate + at), r);
    store_one(dgates + first, dr);
    store_one(dgates + first + features, dz);
    store_one(dgates + first + 2 * features, dn);
    store_one(drecurrent + first, dr);
    store_one(drecurrent + first + features, dz);
    store_one(drecurrent + first + 2 * features, dn * r);
    store_one(dh_before + at, gradient * z);
  }
};

}  // namespace lockstep::functional::inline LOCKSTEP_ISA
