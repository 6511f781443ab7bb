// A store near by in front of one far away: a folder on this machine, and a server that a fleet
// shares. What is near is never fetched; what was fetched is saved near by, so that the next time
// it is there.
#pragma once

#include <memory>

#include "cache/store.h"

namespace picolm::cache {

// trim, list, verify, remove and add are for the store near by: the other one is looked after
// where it is.
class TieredStore : public Store {
  public:
    TieredStore(std::unique_ptr<Store> near, std::unique_ptr<Store> far)
        : near_(std::move(near)), far_(std::move(far)) {}

    // What is near, and from there on what is far. The one far away is asked only for what is
    // missing.
    Match find(const Query& query) override { return match(query, &Store::find); }
    Match load(const Query& query) override { return match(query, &Store::load); }
    // Saves to both. An error of one of them is a note; of both, an error.
    Result<SaveReport> save(const SaveRequest& request) override;

    Result<SaveReport> trim(uint64_t limit_bytes) override { return near_->trim(limit_bytes); }
    std::vector<RecordInfo> list() override { return near_->list(); }
    Result<VerifyReport> verify(bool repair) override { return near_->verify(repair); }
    Result<uint32_t> remove(const std::set<RecordName>& records) override {
        return near_->remove(records);
    }
    Result<SaveReport> add(std::span<const RecordInfo> records) override {
        return near_->add(records);
    }

  private:
    Match match(const Query& query, Match (Store::*verb)(const Query&));

    std::unique_ptr<Store> near_;
    std::unique_ptr<Store> far_;
    uint32_t near_matched_ = 0;  // by the last load()
};

}  // namespace picolm::cache
