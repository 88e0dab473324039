// A row for several passes, and column totals that many rows add to, as a Group's `with_row` and `with_totals` pass
// them to a kernel. Here they stay in memory; a block of GPU threads keeps in registers what fits
// (block_row.h).

#pragma once

#include <cstdint>

#include "tile.h"

namespace anyaccel {

// A row's elements, unchanged.
struct AsTheyAre {
  template <typename C>
  C operator()(std::int64_t, C value) const {
    return value;
  }
};

// A row of `of(i, value)` for the elements that are read. `Beside` are the types of further data that the passes read
// and write together with a row of T.
template <typename Group, typename Of, typename T, typename... Beside>
class RowInMemory {
 public:
  using C = Compute<T>;
  static constexpr bool kReplaces = sizeof(T) == sizeof(C);  // otherwise the row's memory would round the replacement

  RowInMemory(const Group& group, std::int64_t count, bool is_aligned, const Of& of)
      : group_(group), count_(count), is_aligned_(is_aligned), of_(of) {}

  // Starts the row at `row`.
  void read(const T* row) { row_ = row; }

  // Starts a row that is the sum of two rows; writes it to `sum`.
  void read_sum(const T* left, const T* right, T* sum) {
    group_.template tiles<T, Beside...>(count_, is_aligned_, [=](auto range) {
      auto values = load(left, range);
      const auto others = load(right, range);
      for (int i = 0; i < range.kCount; ++i) {
        values[i] += others[i];
      }
      store(values, sum, range);
    });
    row_ = sum;  // a thread reads only its own writes
  }

  // The sum of `body(value)` over the row, in every thread of the group.
  template <typename Body>
  C sum(const Body& body) const {
    return group_.template sum_tiles<C, T, Beside...>(count_, is_aligned_, [row = row_, of = of_, body](auto range) {
      const auto values = load(row, range);
      return sum_over(range, [&](int i) { return body(of(range.first + i, values[i])); });
    });
  }

  // The sum of `body(value, other)` over this row and another.
  template <typename Body>
  C sum_with(const RowInMemory& other, const Body& body) const {
    return group_.template sum_tiles<C, T, Beside...>(
        count_, is_aligned_, [row = row_, beside = other.row_, body](auto range) {
          const auto values = load(row, range);
          const auto others = load(beside, range);
          return sum_over(range, [&](int i) { return body(values[i], others[i]); });
        });
  }

  // Calls `body(range, tile, other)` for the tiles that make up this row and another.
  template <typename Body>
  void each_with(const RowInMemory& other, const Body& body) const {
    group_.template tiles<T, Beside...>(count_, is_aligned_, [row = row_, beside = other.row_, body](auto range) {
      body(range, load(row, range), load(beside, range));
    });
  }

  // Like sum, but also replaces each element by the result of `body`; `place` has room for the new row.
  template <typename Body>
  C replace_and_sum(T* place, const Body& body) {
    const auto replaced = [row = row_, of = of_, place, body](auto range) {
      auto values = load(row, range);
      for (int i = 0; i < range.kCount; ++i) {
        values[i] = body(of(range.first + i, values[i]));
      }
      store(values, place, range);
      return sum_over(range, [&](int i) { return values[i]; });
    };
    row_ = place;
    return group_.template sum_tiles<C, T, Beside...>(count_, is_aligned_, replaced);
  }

  // The maximum of `body(value)` over the row; NaNs are skipped.
  template <typename Body>
  C max(const Body& body) const {
    return group_.template max_tiles<C, T, Beside...>(count_, is_aligned_, [row = row_, of = of_, body](auto range) {
      const auto values = load(row, range);
      return max_over(range, [&](int i) { return body(of(range.first + i, values[i])); });
    });
  }

  C max() const {
    return max([](C value) { return value; });
  }

  // Calls `body(range, tile)` for the tiles that make up the row.
  template <typename Body>
  void each(const Body& body) const {
    group_.template tiles<T, Beside...>(count_, is_aligned_, [row = row_, of = of_, body](auto range) {
      auto tile = load(row, range);
      for (int i = 0; i < range.kCount; ++i) {
        tile[i] = of(range.first + i, tile[i]);
      }
      body(range, tile);
    });
  }

  // Like tiles, after the elements have been replaced.
  template <typename Body>
  void each_new(const Body& body) const {
    group_.template tiles<T, Beside...>(count_, is_aligned_,
                                        [row = row_, body](auto range) { body(range, load(row, range)); });
  }

 private:
  const Group& group_;
  std::int64_t count_;
  bool is_aligned_;
  Of of_;
  const T* row_ = nullptr;
};

// `count` numbers, at `place`, for several passes.
template <typename Group, typename C>
class ValuesInMemory {
 public:
  ValuesInMemory(const Group& group, std::int64_t count, C* place) : group_(group), count_(count), place_(place) {}

  // Sets number i to `body(i)`; no later method needs to wait, as a thread has the same numbers in all of them.
  template <typename Body>
  void fill(const Body& body) const {
    group_.each(count_, [place = place_, body](std::int64_t i) { place[i] = body(i); });
  }

  // Replaces each number by `body(number)`.
  template <typename Body>
  void change(const Body& body) const {
    group_.each(count_, [place = place_, body](std::int64_t i) { place[i] = body(place[i]); });
  }

  C sum() const {
    return group_.template sum<C>(count_, [place = place_](std::int64_t i) { return place[i]; });
  }

  // The maximum of `body(i, number)`.
  template <typename Body>
  C max(const Body& body) const {
    return group_.template max<C>(count_, [place = place_, body](std::int64_t i) { return body(i, place[i]); });
  }

  // Writes the numbers to `place`, where later changes may but need not arrive.
  void publish() const {}

  // Changes a number for later passes; `restore` brings the published one back.
  void replace(std::int64_t i, C by) const {
    group_.wait();
    if (group_.is_first()) {
      place_[i] = by;
    }
    group_.wait();
  }

  void restore(std::int64_t i, C published) const { replace(i, published); }

 private:
  const Group& group_;
  std::int64_t count_;
  C* place_;
};

// `Kinds` totals for each of `count` columns, at `place`, (Kinds, count). They start at zero, in the tiles of
// `each`, so that each thread returns to its own totals and none has to wait.
template <typename Group, int Kinds, typename T, typename... Beside>
class TotalsInMemory {
 public:
  using C = Compute<T>;

  TotalsInMemory(const Group& group, std::int64_t count, bool is_aligned, C* place)
      : group_(group), count_(count), is_aligned_(is_aligned), place_(place) {
    group_.template tiles<T, Beside...>(count_, is_aligned_, [count, place](auto range) {
      for (int kind = 0; kind < Kinds; ++kind) {
        store(Tile<C, range.kCount>{}, place + kind * count, range);
      }
    });
  }

  // Calls `body(range, totals)` for the tiles that make up a row; `totals[kind]` is the tile to add to.
  template <typename Body>
  void each(const Body& body) const {
    group_.template tiles<T, Beside...>(count_, is_aligned_, [count = count_, place = place_, body](auto range) {
      Tile<C, range.kCount> totals[Kinds];
      for (int kind = 0; kind < Kinds; ++kind) {
        totals[kind] = load(place + kind * count, range);
      }
      body(range, totals);
      for (int kind = 0; kind < Kinds; ++kind) {
        store(totals[kind], place + kind * count, range);
      }
    });
  }

 private:
  const Group& group_;
  std::int64_t count_;
  bool is_aligned_;
  C* place_;
};

}  // namespace anyaccel
