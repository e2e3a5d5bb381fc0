package com.example.delegation;

import java.util.List;

/** What the executor needs of the catalog, with the caller's privileges; within Polaris that is its own handler. */
interface TableCatalog {
  /** A table as the catalog has it now. */
  record LoadedTable(String metadataLocation, String uuid, String location, int formatVersion) {}

  /** The name of a table. */
  record TableName(String catalog, List<String> namespace, String table) {}

  /** Whether the caller may drop the table with its files (DROP_TABLE_WITH_PURGE). */
  boolean mayDropWithPurge(TableName name);

  /** Returns the table; throws NoSuchTable, or MetadataMissing once its metadata.json is deleted. */
  LoadedTable load(TableName name);

  /** Removes the entry and no file; throws NoSuchTable. */
  void dropWithoutPurge(TableName name);

  /** The catalog has no such table. */
  final class NoSuchTable extends RuntimeException {}

  /** The catalog has the table, and its metadata file is gone; the message names the file. */
  final class MetadataMissing extends RuntimeException {
    MetadataMissing(String message) {
      super(message);
    }
  }
}
