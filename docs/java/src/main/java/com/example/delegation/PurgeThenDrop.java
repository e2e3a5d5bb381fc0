package com.example.delegation;

import com.example.delegation.KeyedPurges.PurgeFailed;
import com.example.delegation.TableCatalog.LoadedTable;
import com.example.delegation.TableCatalog.MetadataMissing;
import com.example.delegation.TableCatalog.NoSuchTable;
import com.example.delegation.TableCatalog.TableName;
import com.example.delegation.client.ApiException;
import com.example.delegation.model.CommonPayload;
import com.example.delegation.model.CommonPayload.OperationTypeEnum;
import com.example.delegation.model.PurgeTableOperationParameters;
import com.example.delegation.model.TableIdentity;
import com.example.delegation.model.TableMetadata;
import com.example.delegation.model.TaskPayload;
import com.example.delegation.model.TaskPayloadOperationParameters;
import com.example.delegation.model.TaskSuccessResponse;
import java.net.URI;
import java.util.Map;
import java.util.UUID;

/** The executor of a catalog: the service deletes a table's files, then the catalog drops the table's entry. */
final class PurgeThenDrop {
  private final KeyedPurges purges;
  private final TableCatalog catalog;
  private final String realm;

  PurgeThenDrop(KeyedPurges purges, TableCatalog catalog, String realm) {
    this.purges = purges;
    this.catalog = catalog;
    this.realm = realm;
  }

  /** The name has another table, or a newer commit, than the one that was purged: nothing was dropped. */
  static final class TableChanged extends Exception {
    TableChanged(TableName name, String taskId) {
      super(name + " is no longer what task " + taskId + " purged; it was not dropped");
    }
  }

  /** What is to be dropped, and the key of its purge. Store it before `finish`: a restarted caller needs all of it. */
  record DropIntent(TableName name, LoadedTable table, String key) {}

  /** Decides that a table may be dropped, and what exactly that is; changes nothing. */
  DropIntent begin(TableName name) {
    // The service deletes with its own privileges, before the drop could show what the caller may do.
    if (!catalog.mayDropWithPurge(name)) {
      throw new SecurityException("not allowed to drop " + name + " with its files");
    }
    return new DropIntent(name, catalog.load(name), UUID.randomUUID().toString());
  }

  /** Purges the table and then drops it. Repeat it with the same intent after any exception, and after a restart. */
  TaskSuccessResponse finish(DropIntent intent)
      throws PurgeFailed, TableChanged, ApiException, InterruptedException {
    TaskSuccessResponse purged = purges.purge(payload(intent), intent.key());
    if (purged.getExecutionResult() == null || purged.getExecutionResult().getFilesDeleted() == 0) {
      throw new PurgeFailed(
          "NOTHING_PURGED", "the entry stays", purged.getDelegationTaskId().toString(), null);
    }
    dropIfUnchanged(intent.name(), intent.table(), purged.getDelegationTaskId());
    return purged;
  }

  private void dropIfUnchanged(TableName name, LoadedTable before, UUID task) throws TableChanged, ApiException {
    try {
      if (!catalog.load(name).equals(before)) {
        throw new TableChanged(name, task.toString());
      }
    } catch (NoSuchTable dropped) {
      return; // by another client, or by an earlier call whose answer was lost
    } catch (MetadataMissing missing) {
      // The usual case. A commit during the purge moved the table on; the task names the file that it deleted last.
      if (!missing.getMessage().contains(before.metadataLocation())) {
        String last = purges.task(task).getPurgedMetadataLocation();
        if (last == null || !missing.getMessage().contains(last)) {
          throw new TableChanged(name, task.toString());
        }
      }
    }
    try {
      catalog.dropWithoutPurge(name);
    } catch (NoSuchTable dropped) {
      return;
    }
  }

  private TaskPayload payload(DropIntent intent) {
    TableName name = intent.name();
    LoadedTable table = intent.table();
    TableMetadata metadata =
        new TableMetadata()
            .location(URI.create(table.location()))
            .tableUuid(UUID.fromString(table.uuid()))
            .formatVersion(table.formatVersion());
    PurgeTableOperationParameters parameters =
        new PurgeTableOperationParameters()
            .tableIdentity(
                new TableIdentity()
                    .catalogName(name.catalog())
                    .namespaceLevels(name.namespace())
                    .tableName(name.table()))
            .metadataLocation(URI.create(table.metadataLocation()))
            .metadata(metadata)
            // The service requests credentials of its own: send none.
            .config(Map.of());
    // No request_timestamp_utc: a repeat with another time would be another request under the same key (422).
    return new TaskPayload()
        .commonPayload(
            new CommonPayload()
                .operationType(OperationTypeEnum.TABLE_PURGE)
                .realmIdentifier(realm)
                .polarisCorrelationId(intent.key()))
        .operationParameters(new TaskPayloadOperationParameters(parameters));
  }
}
