#pragma once

#include <cstdint>
#include <utility>

#include "lockstep/autograd/ops/loss.hpp"
#include "lockstep/autograd/ops/reduce.hpp"
#include "lockstep/nn/member.hpp"

/// @file
/// Losses as modules. `forward(input, target)`; what either is, and what is thrown, stands with the
/// function of the same name in autograd/ops/loss.hpp.

namespace lockstep::nn {

/// Cross-entropy of logits against classes or probabilities.
class CrossEntropyLoss : public Module {
 public:
  using Options = CrossEntropyOptions;
  /// With all options.
  explicit CrossEntropyLoss(const CrossEntropyOptions& options = {})
      : options_(options), weight(this, "weight", options.weight) {}
  /// The loss of an input and a target.
  Tensor forward(const Tensor& logits, const Tensor& targets) const {
    CrossEntropyOptions options = options_;
    options.weight = weight;
    return cross_entropy(logits, targets, options);
  }

 private:
  CrossEntropyOptions options_;

 public:
  Buffer weight;  ///< of each class, or undefined
};

/// Cross-entropy of log-probabilities against classes.
class NLLLoss : public Module {
 public:
  using Options = NLLLossOptions;
  /// With all options.
  explicit NLLLoss(const NLLLossOptions& options)
      : options_(options), weight(this, "weight", options.weight) {}
  /// How the losses become one.
  explicit NLLLoss(Reduction reduction = Reduction::mean)
      : NLLLoss(NLLLossOptions{.reduction = reduction}) {}
  /// The loss of an input and a target.
  Tensor forward(const Tensor& log_probabilities, const Tensor& targets) const {
    NLLLossOptions options = options_;
    options.weight = weight;
    return nll_loss(log_probabilities, targets, options);
  }

 private:
  NLLLossOptions options_;

 public:
  Buffer weight;  ///< of each class, or undefined
};

/// Binary cross-entropy of probabilities.
class BCELoss : public Module {
 public:
  /// @param weights of each element's loss, broadcast; may be undefined.
  explicit BCELoss(Tensor weights = {}, Reduction reduction = Reduction::mean)
      : reduction_(reduction), weight(this, "weight", std::move(weights)) {}
  /// The loss of an input and a target.
  Tensor forward(const Tensor& probabilities, const Tensor& targets) const {
    return binary_cross_entropy(probabilities, targets, weight, reduction_);
  }

 private:
  Reduction reduction_;

 public:
  Buffer weight;  ///< of each element, or undefined
};

/// Options of BCEWithLogitsLoss.
struct BCEWithLogitsLossOptions {
  Tensor weight = {};      ///< of each element's loss, broadcast; may be undefined
  Tensor pos_weight = {};  ///< factor of the positive term, broadcast; may be undefined
  Reduction reduction = Reduction::mean;
};

/// Binary cross-entropy of logits.
class BCEWithLogitsLoss : public Module {
 public:
  using Options = BCEWithLogitsLossOptions;
  /// With all options.
  explicit BCEWithLogitsLoss(const BCEWithLogitsLossOptions& options = {})
      : reduction_(options.reduction),
        weight(this, "weight", options.weight),
        pos_weight(this, "pos_weight", options.pos_weight) {}
  /// The loss of an input and a target.
  Tensor forward(const Tensor& logits, const Tensor& targets) const {
    return binary_cross_entropy_with_logits(logits, targets, weight, pos_weight, reduction_);
  }

 private:
  Reduction reduction_;

 public:
  Buffer weight;      ///< of each element, or undefined
  Buffer pos_weight;  ///< factor of the positive term, or undefined
};

/// Divergence of probabilities from log-probabilities.
class KLDivLoss : public Module {
 public:
  /// How the losses become one.
  explicit KLDivLoss(Reduction reduction = Reduction::mean, bool log_target = false)
      : reduction_(reduction), log_target_(log_target) {}
  /// The loss of an input and a target.
  Tensor forward(const Tensor& log_probabilities, const Tensor& targets) const {
    return kl_div(log_probabilities, targets, reduction_, log_target_);
  }

 private:
  Reduction reduction_;
  bool log_target_;
};

/// Squared differences.
class MSELoss : public Module {
 public:
  /// How the losses become one.
  explicit MSELoss(Reduction reduction = Reduction::mean) : reduction_(reduction) {}
  /// The loss of an input and a target.
  Tensor forward(const Tensor& input, const Tensor& target) const {
    return mse_loss(input, target, reduction_);
  }

 private:
  Reduction reduction_;
};

/// Absolute differences.
class L1Loss : public Module {
 public:
  /// How the losses become one.
  explicit L1Loss(Reduction reduction = Reduction::mean) : reduction_(reduction) {}
  /// The loss of an input and a target.
  Tensor forward(const Tensor& input, const Tensor& target) const {
    return l1_loss(input, target, reduction_);
  }

 private:
  Reduction reduction_;
};

/// Quadratic for small differences, else their size.
class SmoothL1Loss : public Module {
 public:
  /// @param beta up to which it is quadratic.
  explicit SmoothL1Loss(Reduction reduction = Reduction::mean, double beta = 1.0)
      : reduction_(reduction), beta_(beta) {}
  /// The loss of an input and a target.
  Tensor forward(const Tensor& input, const Tensor& target) const {
    return smooth_l1_loss(input, target, beta_, reduction_);
  }

 private:
  Reduction reduction_;
  double beta_;
};

/// Quadratic for small differences, else delta times their size.
class HuberLoss : public Module {
 public:
  /// @param delta up to which it is quadratic.
  explicit HuberLoss(Reduction reduction = Reduction::mean, double delta = 1.0)
      : reduction_(reduction), delta_(delta) {}
  /// The loss of an input and a target.
  Tensor forward(const Tensor& input, const Tensor& target) const {
    return huber_loss(input, target, delta_, reduction_);
  }

 private:
  Reduction reduction_;
  double delta_;
};

/// Distances to a positive and to a negative, a margin apart.
class TripletMarginLoss : public Module {
 public:
  using Options = TripletMarginLossOptions;
  /// With all options.
  explicit TripletMarginLoss(const Options& options = {}) : options_(options) {}
  /// The loss of points.
  Tensor forward(const Tensor& anchor, const Tensor& positive, const Tensor& negative) const {
    return triplet_margin_loss(anchor, positive, negative, options_);
  }

 private:
  Options options_;
};

/// Negative logarithm of a normal density.
class GaussianNLLLoss : public Module {
 public:
  using Options = GaussianNLLLossOptions;
  /// With all options.
  explicit GaussianNLLLoss(const Options& options = {}) : options_(options) {}
  /// The loss of a mean, a target and a variance.
  Tensor forward(const Tensor& input, const Tensor& target, const Tensor& variance) const {
    return gaussian_nll_loss(input, target, variance, options_);
  }

 private:
  Options options_;
};

/// Negative logarithm of a Poisson probability.
class PoissonNLLLoss : public Module {
 public:
  using Options = PoissonNLLLossOptions;
  /// With all options.
  explicit PoissonNLLLoss(const Options& options = {}) : options_(options) {}
  /// The loss of a rate, or its logarithm, and a count.
  Tensor forward(const Tensor& input, const Tensor& target) const {
    return poisson_nll_loss(input, target, options_);
  }

 private:
  Options options_;
};

/// Which of two is the larger one, by a margin.
class MarginRankingLoss : public Module {
 public:
  /// @param margin by which they are to differ.
  explicit MarginRankingLoss(double margin = 0.0, Reduction reduction = Reduction::mean)
      : margin_(margin), reduction_(reduction) {}
  /// The loss of two inputs and a target, which is 1 or -1.
  Tensor forward(const Tensor& a, const Tensor& b, const Tensor& target) const {
    return margin_ranking_loss(a, b, target, margin_, reduction_);
  }

 private:
  double margin_;
  Reduction reduction_;
};

/// Cosines of pairs, a margin apart.
class CosineEmbeddingLoss : public Module {
 public:
  /// @param margin by which they are to differ.
  explicit CosineEmbeddingLoss(double margin = 0.0, Reduction reduction = Reduction::mean)
      : margin_(margin), reduction_(reduction) {}
  /// The loss of two inputs and a target, which is 1 or -1.
  Tensor forward(const Tensor& a, const Tensor& b, const Tensor& target) const {
    return cosine_embedding_loss(a, b, target, margin_, reduction_);
  }

 private:
  double margin_;
  Reduction reduction_;
};

/// Cosine of the angle between vectors along a dimension.
class CosineSimilarity : public Module {
 public:
  /// @param eps what a vector's length counts at least.
  explicit CosineSimilarity(std::int64_t dim = 1, double eps = 1e-8) : dim_(dim), eps_(eps) {}
  /// Of two that broadcast.
  Tensor forward(const Tensor& a, const Tensor& b) const {
    return cosine_similarity(a, b, dim_, eps_);
  }

 private:
  std::int64_t dim_;
  double eps_;
};

}  // namespace lockstep::nn
